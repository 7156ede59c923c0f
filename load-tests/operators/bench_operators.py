"""Operators against onnxruntime, and gradients against PyTorch, one thread, in turns.
Usage: bench_operators.py BUILD [--rounds N] [--only TEXT] [--target ID] [--cases FILE.jsonl] [--json FILE]
A case is a line of JSON: "name"; "op", "attrs" and "inputs" ("f32[2,3]", "const " in front of what is constant) as Kiln takes them; for an ONNX operator
that takes some of its attributes as inputs "more" [[dtype, values], ...], which follow the others, and "node": its attributes there; "values": contents of
inputs where not any will do; "onnx": [operator, its outputs, of which "y" is compared] where ONNX calls it otherwise; with "grad" the peer is PyTorch's gradient of "torch", an expression over F (torch.nn.functional), torch and the inputs by name.
ratio: the peer's time over Kiln's in the same round, the median; over 1 Kiln is faster. difference: the largest, by the largest magnitude."""
import argparse, json, os, re, statistics, subprocess, sys, tempfile, time
sys.path.append("tests")
from free_port import free_port

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "api", "python"))
import numpy as np
import kiln

TURN = 0.002  # seconds that a contestant is called for in a round
DTYPES = {"f32": "float32", "f64": "float64", "f16": "float16", "i64": "int64", "i32": "int32", "u8": "uint8", "i8": "int8", "bool": "bool"}


def parse(text):
    constant, dtype, dims = re.fullmatch(r"(const )?(\w+)\[([\d,]*)\]", text).groups()
    return bool(constant), dtype, [int(d) for d in dims.split(",") if d]


def content(case, i, dtype, shape, rng):
    given = (case.get("values") or {}).get(str(i))
    if given is not None:
        return np.resize(np.asarray(given, DTYPES[dtype]), shape)
    small = rng.integers(0, 8, shape) if dtype[0] in "iub" else rng.random(shape) * 2 - 1
    return np.ascontiguousarray(small.astype(DTYPES[dtype]))


def ours(client, case, inputs, target):
    named = [dict(name=f"x{i}", dtype=d, shape=s, **({"constant": True} if c else {})) for i, (c, d, s, _) in enumerate(inputs)]
    request = {"op": {"name": case["op"], "attrs": case.get("attrs", {})}, "inputs": named, "target": target, "quality": "verified"}
    if "grad" in case:
        request["grad"] = [f"x{i}" for i in case["grad"]]
    kernel = client.compile_request(request)
    arrays = {f"x{i}": x for i, (_, _, _, x) in enumerate(inputs)}
    missing = [a for a in kernel.inputs if a not in arrays]  # the gradients that come in
    shapes = {a["name"]: a for a in kernel._inputs}
    rng = np.random.default_rng(2)
    for name in missing:
        arrays[name] = (rng.random(shapes[name]["shape"]) * 2 - 1).astype(DTYPES[shapes[name]["dtype"]])
    seed = arrays[missing[0]] if missing else None
    args = [kernel.prepack(a, arrays[a]) if inputs_constant(inputs, a) else arrays[a] for a in kernel.inputs]
    call, outs = kernel.bound(*args)
    call()
    return call, outs, seed


def inputs_constant(inputs, name):
    return name[0] == "x" and name[1:].isdigit() and inputs[int(name[1:])][0]


def onnx_peer(case, inputs):
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
    names, feeds, constants, values = [], {}, [], [x for _, _, _, x in inputs]
    values += [np.asarray(v, DTYPES[d]) for d, v in case.get("more", [])]
    for i, x in enumerate(values):
        names.append(f"i{i}")
        if i >= len(inputs) or inputs[i][0]:
            constants.append(numpy_helper.from_array(x, names[-1]))
        else:
            feeds[names[-1]] = x
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape)) for n, x in feeds.items()]
    op, outputs = case.get("onnx", [case["op"], ["y"]])
    node = helper.make_node(op, names, outputs, **case.get("node", case.get("attrs", {})))
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for n, x in feeds.items():
        binding.bind_cpu_input(n, x)
    binding.bind_output("y")
    return (lambda: session.run_with_iobinding(binding)), session.run(None, feeds)


def torch_peer(case, inputs, seed):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(1)
    scope = {"F": F, "torch": torch}
    for i, (_, _, _, x) in enumerate(inputs):
        scope[f"x{i}"] = torch.from_numpy(x).requires_grad_(i in case["grad"])
    y = eval(case["torch"], scope)
    wanted, incoming = [scope[f"x{i}"] for i in case["grad"]], torch.from_numpy(seed)
    def call():
        return torch.autograd.grad(y, wanted, incoming, retain_graph=True)
    return call, [g.numpy() for g in call()]


def times(call, n):
    began = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - began) / n


def measure(mine, peer, rounds):
    calls = [(f, max(1, int(TURN / times(f, 1)))) for f in (mine, peer)]
    rows = []
    for r in range(rounds):
        row = [0, 0]
        for k in ((0, 1), (1, 0))[r % 2]:
            row[k] = times(*calls[k])
        rows.append(row)
    return [statistics.median(x[k] for x in rows) * 1e6 for k in (0, 1)] + [statistics.median(x[1] / x[0] for x in rows)]


def difference(outs, theirs):
    worst = 0.0
    for x, y in zip(outs, theirs):
        x, y = np.asarray(x, "float64"), np.asarray(y, "float64").reshape(np.shape(x))
        scale = np.max(np.abs(y[np.isfinite(y)]), initial=1e-30)
        worst = max(worst, float(np.max(np.abs(np.where(x == y, 0, x - y)), initial=0) / scale))
    return worst


def run(client, case, args):
    rng = np.random.default_rng(1)
    inputs = [(*parse(t), content(case, i, *parse(t)[1:], rng)) for i, t in enumerate(case["inputs"])]
    mine, outs, seed = ours(client, case, inputs, args.target)
    peer, theirs = torch_peer(case, inputs, seed) if "grad" in case else onnx_peer(case, inputs)
    us, peer_us, ratio = measure(mine, peer, args.rounds)
    return {"name": case["name"], "us": us, "peer_us": peer_us, "ratio": ratio, "difference": difference(outs, theirs)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--only", default="")
    p.add_argument("--target", default="host")
    p.add_argument("--cases", default=os.path.join(here, "cases.jsonl"))
    p.add_argument("--json")
    args = p.parse_args()
    cases = [json.loads(line) for line in open(args.cases) if line.strip()]
    with tempfile.TemporaryDirectory() as work:
        url = f"http://127.0.0.1:{free_port()}"
        service = subprocess.Popen([f"{args.build}/kilnd", "--listen", url[7:], "--data", work, "--hwspecs", "hwspecs"], stderr=subprocess.DEVNULL)
        try:
            client = kiln.Client(url, cache=work + "/client")
            wait_for(client)
            rows = table(client, [c for c in cases if args.only in c["name"]], args)
        finally:
            service.terminate()
            service.wait()
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    return 1 if any("why" in r or r["difference"] > 2e-3 for r in rows) else 0


def wait_for(client):
    for _ in range(200):
        try:
            return client.targets()
        except kiln.Error:
            time.sleep(0.05)
    raise SystemExit("the service does not answer")


def table(client, cases, args):
    rows = []
    print(f"{'case':<34}{'us':>10}{'peer':>10}{'ratio':>8}{'difference':>12}")
    for case in cases:
        try:
            r = run(client, case, args)
            print(f"{r['name']:<34}{r['us']:>10.1f}{r['peer_us']:>10.1f}{r['ratio']:>8.2f}{r['difference']:>12.1e}", flush=True)
        except Exception as e:
            r = {"name": case["name"], "why": str(e).splitlines()[0][:120]}
            print(f"{r['name']:<34}{r['why']}", flush=True)
        rows.append(r)
    good = [r["ratio"] for r in rows if "ratio" in r]
    if good:
        print(f"{len(rows)} cases, geometric mean {statistics.geometric_mean(good):.2f}, least {min(good):.2f}, {sum(x < 1 for x in good)} under 1, "
              f"{len(rows) - len(good)} not measured")
    return rows


if __name__ == "__main__":
    sys.exit(main())
