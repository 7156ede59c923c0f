"""Writes a model of one node for every operator of `cases` and every dtype that ONNX's own schema allows it, of those that Kiln has, in the form of
onnx_nodes.py: DIR/NAME/model.onnx, in_K.pb, out_K.pb, tolerance. A type parameter at a time takes each of its dtypes, the others their first.
Outputs are onnxruntime's where it has that operator of that dtype, otherwise those of onnx's reference evaluator. What neither computes, or is
known to compute wrong (WRONG), is left out and counted. usage: python3 onnx_types.py DIR"""
import os, shutil, sys, warnings
import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
import onnxruntime as ort

warnings.filterwarnings("ignore")
OPSET, NEWEST, IR = 25, 28, 12  # the opset that onnxruntime knows, and that of operators which are not in it
KINDS = {"float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int64": np.int64, "int32": np.int32,
         "int16": np.int16, "int8": np.int8, "uint8": np.uint8, "bool": np.bool_}
PROTO = {k: getattr(TensorProto, k.upper()) for k in KINDS}
ROUND = {"float": 1e-4, "double": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}  # of values that are computed in another order

# LRN takes the batch for the channels; the range of a product of exponents, and fractions of whole numbers, are cut short by onnxruntime
WRONG = {"reference": ["LRN"], "onnxruntime": ["ReduceLogSumExp", "Resize"]}


class Fixed:
    """An input that is given: an initializer where `constant`; of the parameter's dtype, or that of `kind`."""
    def __init__(self, values, kind=None, constant=True):
        self.values, self.kind, self.constant = values, kind, constant


class Drawn:
    """Numbers from lo to hi."""
    def __init__(self, shape, lo=-3, hi=4):
        self.shape, self.lo, self.hi = shape, lo, hi


A, B, NONE = [2, 3, 9], [3, 9], None
I64 = lambda *v: Fixed(list(v), "int64")
ONE = Drawn([3, 7], 1, 5)
UNIT = Drawn([3, 7], -1, 1)
UNARY = {"Abs": A, "Neg": A, "Sign": A, "Ceil": A, "Floor": A, "Round": A, "Exp": A, "Erf": A, "Sin": A, "Cos": A, "Tan": UNIT, "Atan": A, "Sinh": A,
         "Cosh": A, "Asinh": A, "Tanh": A, "Asin": UNIT, "Acos": UNIT, "Atanh": Drawn([3, 7], -0.9, 0.9), "Acosh": ONE, "Sqrt": ONE, "Log": ONE,
         "Reciprocal": ONE, "Relu": A, "LeakyRelu": A, "Sigmoid": A, "HardSigmoid": A, "Gelu": A, "Elu": A, "Celu": A, "Selu": A,
         "ThresholdedRelu": A, "Softplus": A, "Softsign": A, "HardSwish": A, "Swish": A, "Mish": A, "Shrink": A, "Not": A, "IsNaN": A, "IsInf": A,
         "BitwiseNot": A, "Identity": A, "Softmax": A, "LogSoftmax": A, "Hardmax": A, "GlobalMaxPool": [1, 3, 4, 5], "GlobalAveragePool": [1, 3, 4, 5],
         "MeanVarianceNormalization": [2, 3, 4, 5], "LpNormalization": A, "Flatten": A, "Shape": A, "Size": A, "Transpose": A, "Dropout": A, "EyeLike": [4, 5]}
BINARY = ["Add", "Sub", "Mul", "Mod", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
REDUCE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]

cases = [(op, {}, [x]) for op, x in UNARY.items()]
cases += [(op, {}, [A, Drawn(B, 1, 5)]) for op in BINARY]
cases += [(op, a, [Drawn([3, 4, 5], 1, 4), I64(ax)]) for op in REDUCE for ax, a in ((1, {}), (2, {"keepdims": 0}))]
cases += [(op, {"axis": ax}, [A]) for op in ("ArgMax", "ArgMin") for ax in (0, 2)]
cases += [
    ("Div", {}, [A, Drawn(B, 1, 5)]), ("Mod", {"fmod": 1}, [A, Drawn(B, 1, 5)]), ("Pow", {}, [Drawn([3, 7], 1, 4), Drawn([7], 0, 3)]),
    ("BitShift", {"direction": "LEFT"}, [Drawn(A, 0, 8), Drawn(B, 0, 3)]), ("BitShift", {"direction": "RIGHT"}, [Drawn(A, 0, 99), Drawn(B, 0, 3)]),
    ("Max", {}, [A, B]), ("Min", {}, [A, B]), ("Sum", {}, [A, B]), ("Mean", {}, [A, B]), ("Clip", {}, [A, Fixed(1), Fixed(2)]),
    ("Where", {}, [A, B, A]), ("PRelu", {}, [A, B]), ("Cast", {}, [A]), ("CastLike", {}, [A, Fixed([1])]), ("Concat", {"axis": 1}, [A, [2, 1, 9]]),
    ("Concat", {"axis": 2}, [A, A]), ("Expand", {}, [[3, 1], I64(2, 3, 4)]), ("Tile", {}, [A, I64(1, 2, 2)]), ("Reshape", {}, [A, I64(6, 9)]),
    ("Squeeze", {}, [[2, 1, 3], I64(1)]), ("Unsqueeze", {}, [[2, 3], I64(1)]), ("Slice", {}, [A, I64(1, 2), I64(3, 9), I64(1, 2), I64(1, 3)]),
    ("Split", {"axis": 2, "num_outputs": 3}, [A, NONE]), ("Pad", {}, [A, I64(0, 1, 2, 0, 0, 3)]), ("Pad", {"mode": "reflect"}, [A, I64(0, 1, 2, 0, 0, 3)]),
    ("Pad", {"mode": "edge"}, [A, I64(0, 1, 2, 0, 0, 3)]), ("Pad", {}, [A, I64(0, 1, 2, 0, 0, 3), Fixed(1)]), ("Trilu", {}, [[4, 5]]),
    ("Gather", {"axis": 1}, [A, Drawn([2, 2], 0, 3)]), ("GatherElements", {"axis": 2}, [A, Drawn([2, 3, 4], 0, 9)]), ("GatherND", {}, [A, Drawn([2, 2], 0, 2)]),
    ("ScatterElements", {"axis": 1}, [A, Fixed([[[0] * 9, [2] * 9]] * 2, constant=False), [2, 2, 9]]),
    ("ScatterElements", {"axis": 1, "reduction": "add"}, [A, Fixed([[[1] * 9, [1] * 9]] * 2, constant=False), [2, 2, 9]]),
    ("ScatterElements", {"axis": 1, "reduction": "max"}, [A, Fixed([[[1] * 9, [1] * 9]] * 2, constant=False), [2, 2, 9]]),
    ("ScatterND", {}, [A, Fixed([[0, 1], [1, 2]], constant=False), [2, 9]]), ("ScatterND", {"reduction": "add"}, [A, Fixed([[0, 1], [1, 2]], constant=False), [2, 9]]),
    ("OneHot", {}, [Fixed([0, 3, 1, 2], constant=False), Fixed(4), Fixed([0, 1])]), ("ReverseSequence", {}, [[4, 3, 2], Fixed([1, 4, 2], constant=False)]),
    ("TopK", {}, [Fixed([[5, 1, 7, 3, 2, 6]], constant=False), I64(3)]), ("CumSum", {}, [A, Fixed(2)]), ("CumSum", {}, [[40, 3], Fixed(0)]),
    ("CumProd", {}, [Drawn([3, 7], 1, 3), Fixed(1)]), ("DepthToSpace", {"blocksize": 2}, [[1, 8, 2, 3]]), ("SpaceToDepth", {"blocksize": 2}, [[1, 2, 4, 6]]),
    ("Col2Im", {}, [[1, 8, 6], I64(3, 4), I64(2, 2)]), ("Range", {}, [Fixed(1), Fixed(9), Fixed(3)]), ("ConstantOfShape", {}, [I64(2, 3)]),
    ("MatMul", {}, [[2, 3, 5], [5, 4]]), ("Gemm", {"transB": 1}, [[3, 5], [4, 5], [4]]), ("Gemm", {"alpha": 0.5, "beta": 2.0}, [[3, 5], [5, 4], [4]]),
    ("Einsum", {"equation": "bij,bjk->bik"}, [[2, 3, 5], [2, 5, 4]]), ("Einsum", {"equation": "ij->j"}, [[3, 5]]),
    ("MatMulInteger", {}, [[3, 5], [5, 4]]), ("MatMulInteger", {}, [[3, 5], [5, 4], Fixed(1), Fixed(2)]), ("ConvInteger", {}, [[1, 2, 5, 5], [3, 2, 3, 3]]),
    ("Conv", {"pads": [1, 1, 1, 1]}, [[1, 2, 5, 5], [3, 2, 3, 3], [3]]), ("ConvTranspose", {"strides": [2, 2]}, [[1, 2, 4, 4], [2, 3, 3, 3], [3]]),
    ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, [[1, 2, 5, 5]]), ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, [[1, 2, 5, 5]]),
    ("BatchNormalization", {}, [[1, 3, 4], [3], [3], [3], Drawn([3], 1, 4)]), ("InstanceNormalization", {}, [[2, 3, 7], [3], [3]]),
    ("GroupNormalization", {"num_groups": 2}, [[2, 4, 7], [4], [4]]), ("LayerNormalization", {}, [A, [9], [9]]), ("RMSNormalization", {}, [A, [9]]),
    ("LRN", {"size": 3}, [[1, 5, 3, 3]]), ("GridSample", {}, [[1, 2, 4, 5], Drawn([1, 3, 3, 2], -1, 1)]),
    ("GridSample", {"mode": "nearest"}, [[1, 2, 4, 5], Drawn([1, 3, 3, 2], -1, 1)]),
    ("Resize", {"mode": "nearest"}, [[1, 2, 3, 4], NONE, Fixed([1, 1, 2, 2], "float")]), ("Resize", {"mode": "linear"}, [[1, 2, 3, 4], NONE, Fixed([1, 1, 2, 2], "float")]),
    ("Resize", {"mode": "cubic"}, [[1, 2, 3, 4], NONE, NONE, I64(1, 2, 5, 7)]),
    ("QuantizeLinear", {}, [A, Fixed(2), Fixed(1)]), ("DequantizeLinear", {}, [A, Fixed(0.5), Fixed(1)]), ("DynamicQuantizeLinear", {}, [A]),
    ("QLinearMatMul", {}, [[3, 5], Fixed(0.5), Fixed(1), [5, 4], Fixed(0.25), Fixed(1), Fixed(0.5), Fixed(1)]),
    ("QLinearConv", {}, [[1, 2, 5, 5], Fixed(0.5, "float"), Fixed(1), [3, 2, 3, 3], Fixed(0.25, "float"), Fixed(1), Fixed(0.5, "float"), Fixed(1)]),
    ("NegativeLogLikelihoodLoss", {}, [[3, 5], Drawn([3], 0, 5)]), ("SoftmaxCrossEntropyLoss", {}, [[3, 5], Drawn([3], 0, 5)]),
    ("Attention", {}, [[1, 2, 3, 4], [1, 2, 5, 4], [1, 2, 5, 4]]), ("RotaryEmbedding", {}, [[1, 2, 3, 4], [1, 3, 2], [1, 3, 2]]),
    ("RNN", {"hidden_size": 4}, [[3, 1, 5], [1, 4, 5], [1, 4, 4]]), ("GRU", {"hidden_size": 4}, [[3, 1, 5], [1, 12, 5], [1, 12, 4]]),
    ("LSTM", {"hidden_size": 4}, [[3, 1, 5], [1, 16, 5], [1, 16, 4]]),
]


def schema_of(op):
    opset = OPSET if onnx.defs.has(op, OPSET) else NEWEST
    return onnx.defs.get_schema(op, opset), opset


def kinds_of(schema, given):
    """Every choice of a dtype a type parameter."""
    used = {i.type_str for i in schema.inputs[:len(given)]} | {o.type_str for o in schema.outputs}
    allowed = {c.type_param_str: [t[7:-1] for t in c.allowed_type_strs if t[7:-1] in KINDS] for c in schema.type_constraints if c.type_param_str in used}
    first = {p: next(k for k in ("float", "int64", "uint8", "int32", "bool") if k in v) for p, v in allowed.items() if v}
    seen = []
    for p in first:
        for k in allowed[p]:
            choice = dict(first, **{p: k})
            if choice not in seen:
                seen.append(choice)
    return seen


def array(spec, kind, rng):
    t = KINDS[kind]
    if isinstance(spec, Fixed):
        return np.asarray(spec.values).astype(t)
    d = spec if isinstance(spec, Drawn) else Drawn(spec)
    if kind == "bool":
        return rng.integers(0, 2, d.shape).astype(t)
    lo = max(d.lo, 0) if kind == "uint8" else d.lo
    if kind not in ROUND:
        return rng.integers(int(np.ceil(lo)), max(int(d.hi), int(np.ceil(lo)) + 1), d.shape).astype(t)
    return (rng.random(d.shape) * (d.hi - lo) + lo).astype(t)


def model_of(op, attrs, specs, choice, rng):
    schema, opset = schema_of(op)
    names, feeds, constants = [], {}, []
    for i, spec in enumerate(specs):
        if spec is None:
            names.append("")
            continue
        formal = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        kind = getattr(spec, "kind", None) or (formal[7:-1] if formal.startswith("tensor(") else choice[formal])
        x = array(spec, kind, rng)
        names.append(f"x{i}")
        if isinstance(spec, Fixed) and spec.constant:
            constants.append(numpy_helper.from_array(x, names[-1]))
        else:
            feeds[names[-1]] = (x, PROTO[kind])
    out = schema.outputs[0].type_str
    kind = out[7:-1] if out.startswith("tensor(") else choice[out]
    attrs = dict(attrs)
    if op == "Cast":
        attrs["to"] = PROTO[kind]
    if op == "DequantizeLinear":
        attrs["output_dtype"] = PROTO[kind]
    if op == "EyeLike":
        attrs["dtype"] = PROTO[kind]
    if op == "ConstantOfShape":
        attrs["value"] = helper.make_tensor("v", PROTO[kind], [1], [1])
    outputs = [f"y{i}" for i in range(3 if op == "Split" else 2 if op == "TopK" else 1)]
    infos = [helper.make_tensor_value_info(n, t, list(x.shape)) for n, (x, t) in feeds.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.INT64 if n == "y1" and op == "TopK" else PROTO[kind], None) for n in outputs]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attrs)], "g", infos, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR), {n: x for n, (x, _) in feeds.items()}, kind


def computed(op, model, feeds):
    """onnxruntime's outputs or the reference's, and whose."""
    narrow = any(x.dtype == ml_dtypes.bfloat16 for x in feeds.values()) or op in WRONG["onnxruntime"]
    try:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        if not narrow and all("bfloat16" not in o.type for o in session.get_outputs()):
            return session.run(None, feeds), "onnxruntime"
    except Exception:
        pass
    try:
        return (None, "") if op in WRONG["reference"] else (ReferenceEvaluator(model).run(None, feeds), "reference")
    except Exception:
        return None, ""


def main():
    out = sys.argv[1]
    shutil.rmtree(out, ignore_errors=True)
    count = {"onnxruntime": 0, "reference": 0, "": 0}
    for n, (op, attrs, specs) in enumerate(cases):
        for choice in kinds_of(schema_of(op)[0], specs):
            rng = np.random.default_rng(n)
            model, feeds, kind = model_of(op, attrs, specs, choice, rng)
            outputs, whose = computed(op, model, feeds)
            count[whose] += 1
            if not whose:
                print("not computed:", op, choice)
                continue
            where = os.path.join(out, "_".join([op.lower(), str(n)] + [p.lower() + "_" + k for p, k in choice.items()]))
            os.makedirs(where)
            tolerance = max([ROUND.get(k, 0) for k in choice.values()])
            open(where + "/model.onnx", "wb").write(model.SerializeToString())
            open(where + "/tolerance", "w").write("%g %g\n" % (tolerance, tolerance))
            for k, x in enumerate(feeds.values()):
                open(f"{where}/in_{k}.pb", "wb").write(numpy_helper.from_array(x).SerializeToString())
            for k, x in enumerate(outputs):
                x = np.asarray(x) if k else np.asarray(x).astype(KINDS[kind])  # the schema's dtype, where the evaluator keeps another
                open(f"{where}/out_{k}.pb", "wb").write(numpy_helper.from_array(x).SerializeToString())
    print(", ".join(f"{v} by {k or 'none'}" for k, v in count.items()))


main()
