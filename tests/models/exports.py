"""Models that strangers export: every net of strangers.py by both of PyTorch's exporters and several opsets, compiled through a service, run, and compared with
onnxruntime. Usage: exports.py BUILD [NAME...] [--dynamo OPSET] [--script OPSET]; needs torch, onnx, onnxscript, onnxruntime, numpy."""
import contextlib, io, logging, os, sys, warnings
import numpy as np
import onnxruntime
import torch
from serve import Serving, kiln
from strangers import NETS

TOLERANCE = 1e-4
REFUSED = {("recommender", "dynamo"): "SequenceEmpty"}  # an EmbeddingBag as a loop that fills a sequence: said by name
HOW = [("dynamo", 18), ("dynamo", 21), ("dynamo", 23), ("script", 11), ("script", 14), ("script", 17)]


def exported(net, how, opset, path):
    torch.manual_seed(0)
    module, inputs = NETS[net]()
    module.eval()
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for m in module.modules():
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
                m.running_mean.normal_()
                m.running_var.uniform_(0.5, 2)
        if how == "dynamo":
            torch.onnx.export(module, inputs, path, dynamo=True, opset_version=opset, verbose=False, external_data=False)
        else:
            torch.onnx.export(module, inputs, path, dynamo=False, opset_version=opset)
    return inputs


def wanted(path, inputs):
    o = onnxruntime.SessionOptions()
    o.log_severity_level, o.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    feed = {a.name: x.numpy() for a, x in zip(session.get_inputs(), inputs)}
    return feed, session.run(None, feed)


def apart(got, want):
    if got.shape != want.shape or got.dtype != want.dtype or (want.dtype.kind == "f" and not np.isfinite(got).all()):
        return float("inf")
    return float(np.abs(got.astype("f8") - want.astype("f8")).max() / max(1.0, float(np.abs(want.astype("f8")).max()))) if want.size else 0.0


def main():
    logging.disable(logging.WARNING)
    build, names, how = sys.argv[1], [], []
    rest = sys.argv[2:]
    while rest:
        a = rest.pop(0)
        if a.startswith("--"):
            how.append((a[2:], int(rest.pop(0))))
        else:
            names.append(a)
    failed = passed = 0
    with Serving(build) as service:
        for net in names or NETS:
            line = f"{net:18}"
            for kind, opset in how or HOW:
                path = f"{service.work}/{net}.onnx"
                try:
                    inputs = exported(net, kind, opset, path)
                    feed, want = wanted(path, inputs)
                except Exception:  # any: what an exporter, or onnxruntime, cannot do itself is no fault of the reader
                    line += f" {kind}{opset} -"
                    continue
                try:
                    model = service.client.compile_onnx(path)
                    names_in = [a["name"] for a in model.manifest["inputs"]]
                    got = model(*[feed[n] for n in names_in])
                    got = got if isinstance(got, list) else [got]
                    worst = max(map(apart, got, want)) if len(got) == len(want) else float("inf")
                except Exception as e:
                    if REFUSED.get((net, kind), "\n") in str(e):
                        passed += 1
                        line += f" {kind}{opset} refused"
                        continue
                    failed += 1
                    line += f" {kind}{opset} FAIL"
                    print(f"{net} {kind} {opset}: {type(e).__name__} {str(e)[:600]}", flush=True)
                    continue
                good = worst <= TOLERANCE
                passed, failed = passed + good, failed + (not good)
                line += f" {kind}{opset} {worst:.0e}{'' if good else ' FAIL'}"
            print(line, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
