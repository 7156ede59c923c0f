"""The light CNNs of the onnx wheel through a service: real topologies at full size, whose weights are made of constants. Every output must be the one that
is stored beside the model, for the input that the wheel's own runner feeds. Usage: light.py BUILD [NAME...]; needs the packages onnx and numpy."""
import glob, os, sys, time
import numpy as np
import onnx
from onnx import numpy_helper
from serve import Serving, kiln

build, names = sys.argv[1], sys.argv[2:]
folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
files = [f for f in sorted(glob.glob(folder + "/light_*.onnx")) if not names or any(n in f for n in names)]
failed, seen = 0, set()
with Serving(build) as service:
    print(f"{'model':20}{'steps':>6}{'kernels':>9}{'shared':>8}{'compile s':>11}{'ms':>9}  largest difference")
    for f in files:
        name = os.path.basename(f)[6:-5]
        begin = time.time()
        try:
            model = service.client.compile_onnx(f)
            seconds = time.time() - begin
            x = [(np.arange(np.prod(a["shape"])).reshape(a["shape"]) / np.prod(a["shape"])).astype("f4") for a in model.manifest["inputs"]]
            got = model(*x)
            begin = time.time()
            model(*x)
            ms = (time.time() - begin) * 1e3
        except kiln.Error as e:
            print(f"{name:20} FAIL {e}")
            failed += 1
            continue
        want = numpy_helper.to_array(onnx.load_tensor(f.replace(".onnx", "_output_0.pb")))
        worst = float(np.abs(got - want).max())
        good = got.shape == want.shape and np.allclose(got, want, rtol=1e-3, atol=1e-7)
        keys = {k["key"] for k in model.manifest["kernels"]}
        print(f"{name:20}{len(model.manifest['steps']):6}{len(keys):9}{len(keys & seen):8}{seconds:11.1f}{ms:9.1f}  {worst:.2g}{'' if good else '  FAIL'}", flush=True)
        seen |= keys
        failed += not good
print(f"{len(files) - failed} passed, {failed} failed")
sys.exit(1 if failed or not files else 0)
