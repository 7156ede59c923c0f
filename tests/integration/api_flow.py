#!/usr/bin/env python3
"""The compile flow of a real service: miss, hit, one compile for 100 misses, forms, digests, conditions, jobs. Usage: api_flow.py [BUILD]"""
import base64, concurrent.futures, hashlib, io, json, re, socket, sys, time, zipfile
from service import Checks, Service, matmul

check = Checks()
service = Service(sys.argv[1] if len(sys.argv) > 1 else "build")
call = service.call

def post(body, **headers):
    return call("POST", "/v1/compile", body, {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}})

def counter(name):
    for line in call("GET", "/metrics")[2].decode().splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])

try:
    status, h, data = post(matmul(32))
    a = json.loads(data)
    check("miss", status == 200 and h["Cache-Status"] == "kiln; fwd=miss; stored", (status, h, data[:300]))
    check("verified before it is served", a["quality"]["verification"] == "run", a.get("quality"))
    check("binding", a["binding"].get("a") in ("in0", "in1") and len(a["binding"]) == 3, a["binding"])
    check("digest", h["Repr-Digest"] == "sha-256=:" + base64.b64encode(hashlib.sha256(data).digest()).decode() + ":")
    for _ in range(2):
        for _ in range(20): # the news that something was written makes the writer, too, read it from the store once more
            status, h, data = post(matmul(32))
            if status != 200 or "detail=memory" in h["Cache-Status"]: break
            check("hit in the store", h["Cache-Status"] == "kiln; hit; detail=sqlite", h)
        check("hit", status == 200 and h["Cache-Status"] == "kiln; hit; detail=memory" and json.loads(data)["key"] == a["key"], h)
    check("not modified", call("GET", "/v1/kernels/" + a["key"], None, {"If-None-Match": h["Etag"]})[0] == 304)
    check("head", call("HEAD", "/v1/kernels/" + a["key"])[0::2] == (200, b""))
    same = call("POST", "/compile?target=host&x=f32:32x16&y=f32:16x24", "z[I,J] +=! x[I,R] * y[R,J]", {"Content-Type": "text/x-kex"})
    check("the same maths is the same kernel", json.loads(same[2]).get("key") == a["key"], same)
    form = call("POST", "/compile", matmul(32), {"Content-Type": "application/x-www-form-urlencoded"})
    check("curl's default type", form[0] == 200 and json.loads(form[2])["key"] == a["key"], form)
    for x in a["artifacts"]:
        status, h, data = call("GET", x["href"])
        check("blob " + x["kind"], status == 200 and hashlib.sha256(data).hexdigest() == x["sha256"] and len(data) == x["bytes"] and "immutable" in h["Cache-Control"], h)
    status, h, data = post(matmul(32), Accept="text/x-c")
    check("C source", status == 200 and h["Content-Type"] == "text/x-c" and a["manifest"]["entry"].encode() in data, (status, h))
    check("shared object", post(matmul(32), Accept="application/vnd.kiln.so")[2][:4] == b"\x7fELF")
    check("no PTX of a CPU kernel", post(matmul(32), Accept="text/x-ptx")[0] == 406)
    zips = [post(matmul(32), Accept="application/zip")[2] for _ in range(2)]
    z = zipfile.ZipFile(io.BytesIO(zips[0]))
    check("bundle", zips[0] == zips[1] and z.namelist()[0] == "manifest.json" and {i.compress_type for i in z.infolist()} == {zipfile.ZIP_STORED}, z.namelist())
    check("bundle's parts", {"kernel.c", "kernel.h", "lib.so"} <= set(z.namelist()) and z.testzip() is None, z.namelist())

    before = counter("kiln_compiles_total")
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: post(matmul(48)), range(100)))
    check("100 misses", all(x[0] == 200 for x in answers), {x[0] for x in answers})
    check("one compile", counter("kiln_compiles_total") == before + 1, counter("kiln_compiles_total") - before)
    check("collapsed", any("collapsed" in x[1]["Cache-Status"] for x in answers))

    status, h, data = post(matmul(64), Prefer="respond-async")
    check("202", status == 202 and h["Location"].startswith("/v1/jobs/"), (status, h))
    for _ in range(200):
        job = json.loads(call("GET", h["Location"])[2])
        if job["state"] not in ("queued", "running"):
            break
        time.sleep(0.05)
    check("job", job["state"] == "succeeded" and call("GET", job["kernel"])[0] == 200, job)
    check("only-if-cached", post(matmul(80), Cache_Control="only-if-cached")[0] == 504)

    status, h, data = post(matmul(32, target="nvidia-h200"), Accept="text/x-cuda")
    check("CUDA source", status == 200 and b"__global__" in data, (status, data[:200]))
    status, h, data = post(matmul(32, target="nvidia-h200"))
    g = json.loads(data)
    check("GPU answer says what is missing", g["notes"] or any(x["kind"] == "cubin" for x in g["artifacts"]), g)
    status, h, data = post(matmul(32, target="nvidia-h200", quality="verified"))
    check("verified on request", status == 200 and json.loads(data)["quality"]["verification"] == "emulated", (status, data[:300]))
    backward = ({"op": "Softmax", "inputs": [{"name": "x", "dtype": "f32", "shape": [16, 33]}], "grad": ["x"], "target": "nvidia-h200", "quality": "verified"})
    status, h, data = post(backward)
    check("a gradient in CUDA", status == 200 and json.loads(data)["quality"]["verification"] == "emulated", (status, data[:300]))
    halves = [{"name": "a", "dtype": "f16", "shape": [130, 200]}, {"name": "b", "dtype": "f16", "shape": [200, 136]}]
    status, h, data = post(({"op": "MatMul", "inputs": halves, "target": "nvidia-h200", "quality": "verified"}))
    check("tiles that the copy engine brings", status == 200 and json.loads(data)["quality"]["verification"] == "emulated", (status, data[:300]))
    line = {"Content-Type": "text/x-kex"}
    status, h, data = call("POST", "/compile?target=host&quality=verified&grad=x&x=f32:32x16&y=f32:16x24", "z[I,J] +=! x[I,R] * y[R,J]", line)
    g = json.loads(data)
    check("a gradient in one line", status == 200 and g["quality"]["verification"] == "run" and set(g["binding"]) == {"y", "dz", "dx"}, g)
    status, h, data = call("POST", "/compile?target=host&grad=q&x=f32:32x16&y=f32:16x24", "z[I,J] +=! x[I,R] * y[R,J]", line)
    check("a gradient by nothing", status == 422 and b"?grad" in data, (status, data))
    listed = json.loads(call("GET", "/v1/kernels?limit=2")[2])
    more = json.loads(call("GET", "/v1/kernels?limit=100&cursor=" + listed["next"])[2])
    keys = [k["key"] for k in listed["kernels"] + more["kernels"]]
    check("list", len(listed["kernels"]) == 2 and len(keys) == len(set(keys)) == 7, keys)

    # A client's own schedule: checked and verified like any other, a kernel of its own, and the constructed one stays what it was.
    steps = ["split out0 S1 1 8", "split out0 S0 2 4", "reorder out0 S0.0 S1.0 | S0.1 R0.0 | S0.2 S1.1 S1.2", "parallel out0 S0.0",
             "unroll out0 S0.2", "unroll out0 S1.1", "vectorize out0 S1.2"]
    mine = json.loads(post(matmul(32, trace=steps))[2])
    check("given trace", mine["quality"]["verification"] == "run" and mine["manifest"]["trace"] == "\n".join(steps) + "\n" and mine["key"] != a["key"], mine)
    check("the same trace as text", json.loads(post(matmul(32, trace="\n".join(steps) + "\n"))[2])["key"] == mine["key"])
    kept = json.loads(call("GET", "/v1/kernels/" + mine["key"])[2])
    check("a kernel carries its trace", kept["manifest"]["trace"] == mine["manifest"]["trace"] and kept["quality"]["origin"] == "given", kept)
    check("the constructed kernel is what is served", json.loads(post(matmul(32))[2])["artifacts"] == a["artifacts"])
    for wrong, place in ((["split out0 Q 8"], "no axis 'Q'"), (["vectorize out0 S0.0"], "step 1"), ([], "at least one step"), ([3], "/trace/0"),
                         (["parallel out0 R0.0"], "reduces"), (["tensorise out0"], "no such primitive")):
        status, h, data = post(matmul(32, trace=wrong))
        check(f"refused: {wrong}", 400 <= status < 500 and b"/trace" in data and place.encode() in data, (status, data))
    halves = """split out0 S0 2 4\nsplit out0 S1 2 4\nsplit out0 R0 4
reorder out0 S0.0 S1.0 | S0.2 S1.2 | R0.0 | R0.1 S0.1 S1.1\nbind out0 S0.0 grid\nbind out0 S1.0 grid\nbind out0 S0.2 thread\nbind out0 S1.2 thread
bind out0 S0.1 vthread\nbind out0 S1.1 vthread\ncache_read out0 1 shared R0.0 loops R0.1 S1.1 S1.2\ncache_read out0 0 shared R0.0 loops S0.1 S0.2 R0.1
double_buffer out0 0\ndouble_buffer out0 1\nstorage_align out0 0 32 1\n"""
    twice = json.loads(post(matmul(32, target="nvidia-h200", quality="verified", trace=halves))[2])
    check("double buffers", twice.get("quality", {}).get("verification") == "emulated" and twice["manifest"]["trace"] == halves, twice)
    # Instructions of the device: this machine's multiply-add, and a GPU's matrix unit, both as the emulation that their compute text gives.
    with open("hwspecs/" + mine["target"]["id"] + ".json") as f:
        lanes = re.search(r"where I in (\d+)", next(x["compute"] for x in json.load(f)["intrinsics"] if x["name"] == "fma_f32")).group(1)
    fma = f"split out0 S1 {lanes}\nreorder out0 S0.0 S1.0 R0.0 | S1.1\nparallel out0 S0.0\ntensorize out0 S1.1 fma_f32\n"
    unit = json.loads(post(matmul(37, trace=fma))[2])
    check("an instruction of the host", unit.get("quality", {}).get("verification") == "run" and unit["manifest"]["trace"] == fma, unit)
    wmma = """split out0 S0 16\nsplit out0 S1 16\nsplit out0 R0 16\nreorder out0 S0.0 S1.0 R0.0 | S0.1 S1.1 R0.1
bind out0 S0.0 grid\nbind out0 S1.0 grid\ntensorize out0 S0.1 wmma_f16\n"""
    half = [{"name": n, "dtype": "f16", "shape": [40, 40]} for n in "ab"]
    unit = json.loads(post(({"op": "MatMul", "inputs": half, "target": "nvidia-a100", "quality": "verified", "trace": wmma}))[2])
    check("an instruction of a GPU", unit.get("quality", {}).get("verification") == "emulated" and unit["manifest"]["trace"] == wmma, unit)
    status, h, data = post(matmul(37, trace=fma.replace("parallel out0 S0.0\n", ""), target="nvidia-h200"))
    check("an instruction of another device", status == 422 and b"no instruction 'fma_f32'" in data and b"wmma_f16" in data, (status, data))
    both = post(matmul(32, trace=steps, policy="roller"))
    check("trace and policy", 400 <= both[0] < 500 and b"exclude" in both[2], both)

    gone = socket.create_connection(("127.0.0.1", service.port))
    body = json.dumps(matmul(96)).encode()
    gone.sendall(b"POST /v1/compile HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    gone.close()
    time.sleep(0.2)
    check("a client that leaves", post(matmul(96))[0] == 200 and service.process.poll() is None)
finally:
    check("ends on SIGTERM", service.stop() == 0)
sys.exit(check.end())
