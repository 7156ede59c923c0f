"""Peers that are Python packages: PyTorch (eager, and Inductor with weights frozen, so packed) and onnxruntime (weights are initializers, so
packed; "plain": inputs of each call). make() gives for one case a function that computes and one that returns the output in the case's layout;
None where a package is not installed, has no such operator, or is not asked for (BENCH_PYPI names those that are)."""
import os

wanted = os.environ.get("BENCH_PYPI", "").split()
said = set()

def package(name):
    try: return __import__(name)
    except ImportError as e:
        if name not in said: print(f"peer {name} is absent: {e}")
        said.add(name)

def shapes(op, p):
    """Extents of the inputs and of the output, in the case's layout given as NCHW; weights as output, input, row, column."""
    if op in ("matmul", "batch_matmul"):
        b = [p["B"]] if op == "batch_matmul" else []
        return [b + [p["M"], p["K"]], b + [p["K"], p["N"]]], b + [p["M"], p["N"]]
    if op.endswith("2d"):
        x, y = [p["N"], p["C"], p["H"], p["W"]], [p["N"], p["F"] if "conv" in op else p["C"], p["HO"], p["WO"]]
        return ([x, [p["F"], p["CG"], p["KH"], p["KW"]]] if "conv" in op else [x]), y
    if op in ("relu", "add", "gelu"): return [[p["flat"]]] * (2 if op == "add" else 1), [p["flat"]]
    if op == "transpose": return [[p["M"], p["N"]]], [p["N"], p["M"]]
    rows = [p["outer"], p["inner"]]
    if op == "reduce_sum": return [rows], [rows[1 - p["axis"]]]
    return [rows] + ([rows[1:]] * 2 if op == "layer_norm" else []), rows

# ---- PyTorch ------------------------------------------------------------------------------------------------------------------------------
def torch_function(torch, c):
    p, f = c["params"], torch.nn.functional
    s, d, g = p.get("stride"), p.get("dilation"), p.get("group")
    even = p.get("PT") == p.get("PB") and p.get("PL") == p.get("PR")
    if c["dtype"] == "i8": return (lambda x, w: torch._int_mm(x, w)) if c["op"] == "matmul" else None
    def padded(x, value=0.0): return x if even else f.pad(x, (p["PL"], p["PR"], p["PT"], p["PB"]), value=value)
    pad = (p.get("PT"), p.get("PL")) if even else 0
    conv = lambda x, w: f.conv2d(padded(x), w, None, s, pad, d, g)
    pool = lambda x: f.max_pool2d(padded(x, float("-inf")), (p["KH"], p["KW"]), s, pad)
    mean = (lambda x: f.avg_pool2d(x, (p["KH"], p["KW"]), s, pad, count_include_pad=False)) if even else None
    return {"matmul": torch.matmul, "batch_matmul": torch.matmul, "conv2d": conv, "depthwise_conv2d": conv, "grouped_conv2d": conv,
            "max_pool2d": pool, "avg_pool2d": mean, "reduce_sum": lambda x: torch.sum(x, p["axis"]), "relu": torch.relu, "add": torch.add, "gelu": f.gelu,
            "softmax": lambda x: torch.softmax(x, 1), "layer_norm": lambda x, w, b: f.layer_norm(x, x.shape[1:], w, b, 1e-5),
            "transpose": lambda x: x.t().contiguous()}[c["op"]]

def torch_inputs(torch, c):
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8}
    last, out = c["layout"] == "NHWC", []
    for i, shape in enumerate(shapes(c["op"], c["params"])[0]):
        x = torch.frombuffer(c["inputs"][i], dtype=types[c["dtype"] if c["dtype"] in types else "f32"])
        if last and i == 0: x = x.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
        elif last: x = x.view(shape[2], shape[3], shape[1], shape[0]).permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        out.append(x if last else x.view(shape))
    return out

def with_torch(c, compiled):
    torch = package("torch")
    if not torch: return None
    torch.set_num_threads(c["threads"])
    function = torch_function(torch, c)
    if not function: return None
    x, last = torch_inputs(torch, c), c["layout"] == "NHWC"
    if compiled:
        import torch._inductor.config as config
        config.freezing = True
        torch._dynamo.reset()
        class Module(torch.nn.Module): # what is no activation is a parameter: freezing packs it
            def __init__(self):
                super().__init__()
                self.rest = torch.nn.ParameterList([torch.nn.Parameter(w, requires_grad=False) for w in x[1:]])
            def forward(self, a): return function(a, *self.rest)
        eager = Module().eval()
        module = torch.compile(eager, dynamic=False)
        run = (lambda: module(x[0])) if c["op"] in ("matmul", "conv2d", "depthwise_conv2d", "grouped_conv2d", "layer_norm") else None
        if not run:
            whole = torch.compile(function, dynamic=False)
            run = lambda: whole(*x)
    else: run = lambda: function(*x)
    result = [None]
    def compute():
        with torch.inference_mode(): result[0] = run()
    def output():
        y = result[0].permute(0, 2, 3, 1) if last else result[0]
        return y.contiguous().view(torch.uint8).numpy().reshape(-1)
    compute()
    return compute, output

# ---- onnxruntime --------------------------------------------------------------------------------------------------------------------------
def onnx_node(c):
    """ONNX operator and attributes; None where opset 21 has none that fits."""
    p, integer = c["params"], c["dtype"] == "i8"
    window = dict(strides=[p.get("stride")] * 2, pads=[p.get(k) for k in ("PT", "PL", "PB", "PR")])
    conv = dict(window, dilations=[p.get("dilation")] * 2, group=p.get("group"))
    pool = dict(window, kernel_shape=[p.get("KH"), p.get("KW")])
    if c["layout"] == "NHWC": return None
    return {"matmul": ("MatMulInteger" if integer else "MatMul", {}), "batch_matmul": ("MatMul", {}), "conv2d": ("ConvInteger" if integer else "Conv", conv),
            "depthwise_conv2d": ("Conv", conv), "grouped_conv2d": ("Conv", conv), "max_pool2d": ("MaxPool", pool),
            "avg_pool2d": ("AveragePool", pool), "relu": ("Relu", {}),
            "add": ("Add", {}), "gelu": ("Gelu", {}), "softmax": ("Softmax", {"axis": 1}), "layer_norm": ("LayerNormalization", {"epsilon": 1e-5}),
            "reduce_sum": ("ReduceSum", {"keepdims": 0}), "transpose": ("Transpose", {"perm": [1, 0]})}[c["op"]]

def with_onnxruntime(c, plain):
    ort, onnx, node = package("onnxruntime"), package("onnx"), onnx_node(c)
    if not ort or not onnx or not node or c["dtype"] not in ("f32", "i8"): return None
    import numpy as np
    from onnx import helper, numpy_helper, TensorProto
    ins, out = shapes(c["op"], c["params"])
    arrays = [np.frombuffer(b, dtype=np.int8 if c["dtype"] == "i8" else np.float32).reshape(s) for b, s in zip(c["inputs"], ins)]
    kind, sum_kind = (TensorProto.INT8, TensorProto.INT32) if c["dtype"] == "i8" else (TensorProto.FLOAT, TensorProto.FLOAT)
    constant = {"matmul": 1, "conv2d": 1, "depthwise_conv2d": 1, "grouped_conv2d": 1, "layer_norm": 1}.get(c["op"], len(arrays))
    if plain and (constant == len(arrays) or c["op"] == "layer_norm"): return None # has no weights to pack: one form is enough
    if plain: constant = len(arrays)
    initializers = [numpy_helper.from_array(a, f"x{i}") for i, a in enumerate(arrays) if i >= constant]
    names = [f"x{i}" for i in range(len(arrays))]
    if c["op"] == "reduce_sum":
        initializers.append(numpy_helper.from_array(np.array([c["params"]["axis"]], dtype=np.int64), "axes"))
        names.append("axes")
    graph = helper.make_graph([helper.make_node(node[0], names, ["y"], **node[1])], "case",
                              [helper.make_tensor_value_info(f"x{i}", kind, ins[i]) for i in range(min(constant, len(arrays)))],
                              [helper.make_tensor_value_info("y", sum_kind, out)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = c["threads"], 4
    try: session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception: return None # no kernel for these dtypes
    y, binding = np.empty(out, dtype=np.int32 if c["dtype"] == "i8" else np.float32), session.io_binding()
    for i in range(min(constant, len(arrays))):
        binding.bind_input(f"x{i}", "cpu", 0, arrays[i].dtype, ins[i], arrays[i].ctypes.data)
    binding.bind_output("y", "cpu", 0, y.dtype, out, y.ctypes.data)
    def compute(): session.run_with_iobinding(binding)
    return compute, lambda: y

def make(form, case):
    name, _, plain = form.partition(" ")
    if name not in wanted: return None
    if name == "onnxruntime": return with_onnxruntime(case, bool(plain))
    return with_torch(case, form == "inductor")
