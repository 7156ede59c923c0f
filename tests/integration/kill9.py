"""The service under load, killed with SIGKILL at random instants and started again on the same data: every record that is listed afterwards
is whole, and every artifact matches its digest. usage: kill9.py BUILD [TIMES]"""
import hashlib, json, os, random, signal, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request
sys.path.append("tests")
from free_port import free_port

build, times = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
work = tempfile.mkdtemp()
port = free_port()
url = f"http://127.0.0.1:{port}"
stop, sizes, answered = threading.Event(), iter(range(3, 10 ** 9)), []
lock = threading.Lock()

def start():
    d = subprocess.Popen([f"{build}/kilnd", "--listen", f"127.0.0.1:{port}", "--data", work + "/data", "--hwspecs", "hwspecs"],
                         stderr=open(work + "/log", "a"), start_new_session=True)
    for _ in range(200):
        if d.poll() is not None: raise SystemExit("kilnd ended at start:\n" + open(work + "/log").read()[-2000:])
        try:
            urllib.request.urlopen(url + "/readyz", timeout=2)
            return d
        except Exception: time.sleep(0.05)
    raise SystemExit("kilnd did not become ready")

def get(path): return urllib.request.urlopen(url + path, timeout=20)

def client(i):
    r = random.Random(i)
    while not stop.is_set():
        with lock: n = next(sizes)
        op = r.choice(["Relu", "Tanh", "Sigmoid"]) if i % 2 else "MatMul"
        inputs = [{"name": "a", "dtype": "f32", "shape": [n, 7]}] + ([{"name": "b", "dtype": "f32", "shape": [7, 5]}] if op == "MatMul" else [])
        body = json.dumps({"op": op, "inputs": inputs, "target": "nvidia-h200" if i == 3 else "host"}).encode()
        try:
            a = json.load(urllib.request.urlopen(urllib.request.Request(url + "/compile", body, {"Content-Type": "application/json"}), timeout=20))
            with lock: answered.append(a["key"])
        except Exception: time.sleep(0.02)

def listed():
    keys, cursor = [], ""
    while True:
        a = json.load(get("/v1/kernels" + (f"?cursor={cursor}" if cursor else "")))
        keys += [k["key"] for k in a["kernels"]]
        cursor = a.get("next") or a.get("cursor") or ""
        if not cursor or not a["kernels"]: return keys

seen = set()
def check(known):
    """Whole records only, and nothing that was answered is lost. Kernels seen in an earlier round are not fetched again."""
    keys = listed()
    assert len(keys) == len(set(keys)), "a key is listed twice"
    lost = set(known) - set(keys)
    assert not lost, f"answered and lost: {sorted(lost)[:3]}"
    for key in [k for k in keys if k not in seen]:
        k = json.load(get("/v1/kernels/" + key))
        assert k["key"] == key and k["manifest"]["kiln_abi"] == 1 and k["artifacts"], key
        for a in k["artifacts"]:
            data = get(a["href"]).read()
            assert hashlib.sha256(data).hexdigest() == a["sha256"] and len(data) == a["bytes"], (key, a)
        seen.add(key)
    return len(keys)

daemon = start()
threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(4)]
for t in threads: t.start()
total = 0
try:
    for i in range(times):
        time.sleep(random.uniform(0.05, 1.2))
        with lock: known = list(answered)
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
        daemon = start()
        total = check(known)
finally:
    stop.set()
    daemon.terminate()
    daemon.wait(30)
for t in threads: t.join(30)
assert total > 0
bad = subprocess.run(["sh", "-c", f"ls {work}/data | grep -c corrupt"], capture_output=True, text=True).stdout.strip()
assert bad == "0", "the store was moved aside as corrupt"
print(f"killed {times} times: {total} kernels listed, all whole, none lost; {len(answered)} answers")
