"""How long the first compile of a model takes beside what its kernels take one after the other in a fresh service, over the cores: the median of ROUNDS
pairs, each in services of its own; the second; and that of other CNNs: the first half of the same network, whose every kernel must be found, and one with
other layers. Usage: cold.py BUILD [MODEL OTHER]; needs onnx; default: ResNet-50, DenseNet-121 of the onnx wheel."""
import os, statistics, sys, time
import onnx
from serve import Serving, kiln

build = sys.argv[1]
light = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
files = sys.argv[2:] or [f"{light}/light_resnet50.onnx", f"{light}/light_densenet121.onnx"]
CORES = len(os.sched_getaffinity(0))
ROUNDS = int(os.environ.get("ROUNDS", 5))


def one_by_one(manifest):
    """Seconds that the kernels take a fresh service when each is asked for alone."""
    with Serving(build) as alone:
        begin = time.time()
        for k in manifest["kernels"]:
            status = 202
            while status == 202:
                status, _, _ = alone.client.transport.call("POST", "/v1/compile?target=host", k["program"].encode(),
                                                           {"Content-Type": "text/x-kex", "Accept": "application/json", "Prefer": "wait=60"})
        return time.time() - begin


def taken(client, body):
    begin = time.time()
    model = client.compile_onnx(body)
    return time.time() - begin, model


def half(body):
    """The first half of a network: what a second CNN with the same trunk would be."""
    m = onnx.load_from_string(body)
    at = len([n for n in m.graph.node if n.op_type != "ConstantOfShape"]) // 2
    nodes = [n for n in m.graph.node if n.op_type != "ConstantOfShape"][:at]
    last = next(n for n in reversed(nodes) if n.op_type == "Relu")
    del m.graph.output[:]
    m.graph.output.append(onnx.helper.make_tensor_value_info(last.output[0], onnx.TensorProto.FLOAT, None))
    keep, need = [], {last.output[0]}
    for n in reversed(list(m.graph.node)):
        if need & set(n.output):
            keep.insert(0, n)
            need |= set(n.input)
    del m.graph.node[:]
    m.graph.node.extend(keep)
    return m.SerializeToString()


failed = 0
with Serving(build) as service:
    client = service.client
    bodies = [open(f, "rb").read() for f in files]
    wall, model = taken(client, bodies[0])
    keys = [k["key"] for k in model.kernels]
    pairs = [(wall, one_by_one(model.manifest))]
    while len(pairs) < ROUNDS:
        with Serving(build) as empty:
            wall = taken(empty.client, bodies[0])[0]
        pairs.append((wall, one_by_one(model.manifest)))
    ratios = [wall / (own / CORES) for wall, own in pairs]
    wall, own = (statistics.median(p) for p in zip(*pairs))
    print(f"{os.path.basename(files[0])}: cold {wall:.1f} s, {len(keys)} kernels of {own:.1f} s one by one, on {CORES} cores: "
          f"{statistics.median(ratios):.2f} of ideal ({', '.join(f'{r:.2f}' for r in ratios)})")
    failed += statistics.median(ratios) > 1.3
    again, _ = taken(client, bodies[0])
    fresh, _ = taken(kiln.Client(service.url, cache=service.work + "/other", timeout=900), bodies[0])
    print(f"again: {again:.3f} s, for a client that has nothing: {fresh:.3f} s")
    failed += again >= 1 or fresh >= 1
    for name, body in (("its first half", half(bodies[0])), (os.path.basename(files[1]), bodies[1])):
        wall, other = taken(client, body)
        hits = {k["key"] for k in other.kernels if "hit" in k["cache_status"]}
        shared = {k["key"] for k in other.kernels} & set(keys)
        print(f"{name}: {wall:.1f} s, {len(other.kernels)} kernels, {len(shared)} shared, {len(hits)} hits by Cache-Status")
        failed += not shared <= hits
        keys += [k["key"] for k in other.kernels]
print("cold:", "FAILED" if failed else "ok")
sys.exit(1 if failed else 0)
