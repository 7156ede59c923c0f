"""An improvement as clients see it: a worker whose compiler is bad at the source of the current version (and at nothing else) retunes a kernel. The faster
candidate becomes a new version: another ETag, an event on the stream, in the memory of the service at once; a pinned client keeps what it has.
usage: retune.py BUILD"""
import json, os, pathlib, shutil, subprocess, sys, tempfile, threading, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service

build = sys.argv[1]
check = Checks()
s = Service(build)
work = pathlib.Path(tempfile.mkdtemp(prefix="kiln-test."))
work.chmod(0o755)
body = {"op": "MatMul", "inputs": [{"name": "a", "dtype": "f32", "shape": [96, 128]}, {"name": "b", "dtype": "f32", "shape": [128, 96]}], "target": "host"}
worker = None
seen = []

def listen():
    c = s.connection(100)
    c.request("GET", "/v1/events")
    r, one = c.getresponse(), {}
    try:
        while True:
            line = r.readline().decode().rstrip("\n")
            if line and line[0] != ":": one.update([line.split(": ", 1)])
            elif "data" in one:
                seen.append((one["event"], json.loads(one["data"])))
                if one["event"] == "succeeded" and seen[-1][1]["key"] == key: break
                one = {}
    except OSError: pass
    c.close()

try:
    first = s.call("POST", "/v1/compile", body)
    check("compiled", first[0] == 200, first)
    made = json.loads(first[2])
    key, path = made["key"], "/v1/kernels/" + made["key"]
    source = next(x for x in made["artifacts"] if x["kind"] == "source")
    before = s.call("GET", path)
    text = s.call("GET", path, headers={"Accept": "text/x-c"})
    check("version 1", json.loads(before[2])["version"] == 1 and before[1]["Etag"] != "", before)
    check("the same again", s.call("GET", path, headers={"If-None-Match": before[1]["Etag"]})[0] == 304)

    (work / "bin").mkdir()
    (work / "slow").write_text(source["sha256"])
    (work / "bin/cc").write_text(f"""#!/bin/sh
slow=
for a; do case $a in *.c) [ "$(sha256sum < "$a" | cut -c1-64)" = "$(cat {work}/slow)" ] && slow=-O0 ;; esac; done
exec {shutil.which("cc")} "$@" $slow
""")
    (work / "bin/cc").chmod(0o755)
    worker = subprocess.Popen([build + "/kiln-worker", "run", *s.store, "--kinds", "retune", "--slots", "1", "--name", "tuner"], stderr=open(work / "log", "w"),
                              env={**os.environ, "KILN_CC": str(work / "bin/cc")})
    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(0.5)
    job = s.call("POST", "/v1/jobs", {"kind": "retune", "request": body, "budget_trials": 4})
    check("job", job[0] == 202, job)
    end = None
    for _ in range(5):
        end = s.json("GET", job[1]["Location"], headers={"Prefer": "wait=20"})
        if end["state"] not in ("queued", "leased", "running", "retry_wait"): break
    check("improved", end["state"] == "succeeded" and end["result"]["improved"] is True and end["result"]["version"] == 2, (end, open(work / "log").read()[-600:]))
    listener.join(30)

    after = s.call("GET", path, headers={"If-None-Match": before[1]["Etag"]})
    now = json.loads(after[2] or b"{}")
    check("another ETag, another version", after[0] == 200 and after[1]["Etag"] != before[1]["Etag"] and now["version"] == 2 and "tuned" in after[2].decode(), (after[0], after[1], now.get("quality")))
    again = s.call("POST", "/v1/compile", body)
    check("a compile answers with it", json.loads(again[2])["build"] == now["build"] != made["build"], again[1])
    check("an event says so", any(k == "kernel" and e["key"] == key and e.get("version") == 2 for k, e in seen), [k for k, _ in seen])
    pinned = s.call("GET", f"{path}?pin={made['build']}")
    check("pinned clients keep theirs", pinned[0] == 200 and pinned[1]["Etag"] == before[1]["Etag"] and json.loads(pinned[2])["build"] == made["build"], pinned[:2])
    kept = s.call("GET", f"{path}?pin={made['build']}", headers={"Accept": "text/x-c"})
    check("and its bytes", kept[2] == text[2] and s.call("GET", path, headers={"Accept": "text/x-c"})[2] != text[2])
finally:
    if worker:
        worker.terminate()
        worker.wait(60)
    s.stop()
    shutil.rmtree(work, ignore_errors=True)
sys.exit(check.end())
