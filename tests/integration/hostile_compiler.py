"""A compiler that is hostile: of the kernels that it is meant to be hostile at, it writes and reads where it may not, calls out, forks without end, takes 20 GB in
one process and some GB in many. Each such compile fails alone and is in the log; kernels beside it are built meanwhile; the service neither grows nor ends.
usage: hostile_compiler.py BUILD"""
import json, os, pathlib, re, shutil, socket, sys, tempfile, threading, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, matmul

build = os.path.abspath(sys.argv[1])
check = Checks()
work = pathlib.Path(tempfile.mkdtemp(prefix="kiln-test."))
work.chmod(0o755)
(work / "bin").mkdir()
listener = socket.create_server(("127.0.0.1", 0))
listener.settimeout(0.2)
elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="kiln-test."))
(elsewhere / "secret").write_text("a secret\n")
# What it does at a matmul of so many rows; the last word is what the client must not be told.
deeds = {
    201: f"echo planted > {elsewhere}/planted || echo cannot write >&2; cat {elsewhere}/secret >&2; exit 1",
    202: f"exec bash -c 'echo hello > /dev/tcp/127.0.0.1/{listener.getsockname()[1]}'",
    203: "bomb() { bomb | bomb & wait; }; bomb",
    204: "exec dd if=/dev/zero of=/dev/null bs=20G count=1",
    205: "for i in 1 2 3 4 5 6 7 8 9; do (exec dd if=/dev/zero of=/dev/null bs=700M count=4) & done; wait; exit 1",
}
cases = "\n".join(f'    *"f32[{n},16]"*) {deed} ;;' for n, deed in deeds.items())
(work / "bin/cc").write_text(f"""#!/bin/sh
for a; do case $a in *.c) source=$(cat "$a") ;; esac; done
case $source in
{cases}
esac
exec {shutil.which("cc")} "$@"
""")
(work / "bin/cc").chmod(0o755)
s = Service(build, environ={"KILN_CC": str(work / "bin/cc"), "TMPDIR": str(work)})
status = lambda: dict(re.findall(r"(\w+):\s+(\d+)", open(f"/proc/{s.process.pid}/status").read()))
log = lambda: [json.loads(l) for l in open(s.log_path) if l.startswith("{")]
def left_over():
    n = 0
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try: n += str(work).encode() in (p / "environ").read_bytes() and int(p.name) != s.process.pid
        except OSError: pass
    return n

try:
    plain = s.call("POST", "/v1/compile", matmul(7, target="host"))
    check("an ordinary kernel", plain[0] == 200, plain)
    before = int(status()["VmRSS"])
    for rows, deed in deeds.items():
        answers, neighbours, stop = [], [], threading.Event()
        def beside(base):
            k = 0
            while not stop.is_set() or k < 2:
                at = time.time()
                neighbours.append((s.call("POST", "/v1/compile", matmul(base + k, target="host"))[0], time.time() - at))
                k += 1
        t = threading.Thread(target=beside, args=(rows * 10,))
        t.start()
        answer = s.call("POST", "/v1/compile", matmul(rows, target="host"), headers={"Prefer": "wait=60"}, timeout=100)
        stop.set()
        t.join()
        problem = json.loads(answer[2])
        check(f"fails: {deed}", answer[0] in (500, 504) and "build" not in problem, answer)
        check(f"and says nothing of this machine: {deed}", b"a secret" not in answer[2] and s.data.encode() not in answer[2], answer[2])
        check(f"alone: {deed}", neighbours and all(n[0] == 200 for n in neighbours), neighbours)
        said = [l for l in log() if l.get("event") == "compile-failed"]
        check(f"is in the log: {deed}", len(said) == list(deeds).index(rows) + 1, said)
        check(f"the service is well: {deed}", s.process.poll() is None and s.call("GET", "/readyz")[0] == 200)
    check("nothing was planted", not (elsewhere / "planted").exists())
    try: check("nobody called", not listener.accept())
    except TimeoutError: pass
    said = " ".join(l["message"] for l in log() if l.get("event") == "compile-failed")
    check("the bomb and the gigabytes are named", "processes" in said and "memory" in said, said)
    time.sleep(0.3)
    check("nothing is left of them", left_over() == 0, left_over())
    check("the service did not grow", int(status()["VmRSS"]) < before + 64 * 1024, (before, status()["VmRSS"]))
    check("the kernels are right", s.call("POST", "/v1/compile", matmul(7, target="host"))[0] == 200)
finally:
    s.stop()
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(elsewhere, ignore_errors=True)
sys.exit(check.end())
