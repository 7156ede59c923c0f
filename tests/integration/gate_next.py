"""A binary that the static gate refuses is no answer and no end: the next schedule is built; where there is none, the reason is said. The assembler is
a stand-in that serialises every wgmma. Usage: gate_next.py [BUILD]"""
import json, os, subprocess, sys, tempfile
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from service import Checks, Service

build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
check = Checks()
mock = tempfile.mkdtemp() + "/libnvrtc.so.13"
subprocess.run([os.environ.get("CC", "cc").split()[-1], "-shared", "-fPIC", "-O1", "-o", mock, "tests/mock/nvrtc_mock.c"], check=True)
service = Service(build, environ={"KILN_NVRTC": mock})
product = {"expr": "c[M,N] +=! a[M,K]*b[N,K]", "target": "nvidia-h200",
           "inputs": [{"name": "a", "dtype": "f16", "shape": [128, 256]}, {"name": "b", "dtype": "f16", "shape": [192, 256]}]}
status, _, body = service.call("POST", "/v1/compile", product)
answer = json.loads(body)
check("the next schedule", status == 200, body)
source = service.kiln("get", answer.get("key", ""), "--as", "source")[1] if status == 200 else ""
check("no instruction that the assembler serialises", "mma.sync" in source and "wgmma.mma_async" not in source, source[:300])
status, _, body = service.call("POST", "/v1/compile", {**product, "top_k": 1})
check("the same kernel, whoever asked", status == 200, body)
other = {**product, "inputs": [{**product["inputs"][0], "shape": [128, 512]}, {**product["inputs"][1], "shape": [192, 512]}], "top_k": 1}
status, _, body = service.call("POST", "/v1/compile", other)
check("nothing else was allowed", status == 500 and b"C7514" in body, body)
service.stop()
sys.exit(check.end())
