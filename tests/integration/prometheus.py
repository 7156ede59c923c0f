#!/usr/bin/env python3
"""A Prometheus with what packaging/prometheus says scrapes a service: its target is up, its rules load and fire as tests/data/alerts_test.yml says, and every metric
that operators were promised is there with its labels. Usage: prometheus.py [BUILD]"""
import json, os, re, subprocess, sys, tempfile, time, urllib.parse, urllib.request
sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))
from free_port import free_port
from service import Checks, Service

# Every metric that docs/operations.md promises, with its labels.
PROMISED = {m.group(1): set(m.group(2).split(",")) if m.group(2) else set()
            for m in re.finditer(r"^\| `(kiln_[a-z_]+)(?:{([a-z,]+)})?` \|", open("docs/operations.md").read(), re.M)}
build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
work = tempfile.mkdtemp(prefix="kiln-test.")
ADMIN = "an administrator's key of a test"
with open(work + "/key", "w") as f: f.write(ADMIN)
running = []

def start(*command):
    running.append(subprocess.Popen(command, stdout=open(work + "/" + os.path.basename(command[0]), "w"), stderr=subprocess.STDOUT, cwd=work))
    return running[-1]

def promtool(*args, **more):
    r = subprocess.run(["promtool", *args], capture_output=True, text=True, **more)
    check("promtool " + " ".join(args[:2]), r.returncode == 0, r)

def ask(path): return json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10))["data"]
def series(query): return ask("query?" + urllib.parse.urlencode({"query": query}))["result"]
def until(seconds, f):
    end = time.monotonic() + seconds
    while not f() and time.monotonic() < end: time.sleep(0.2)
    return f()

s = None
try:
    redis = free_port()
    start("redis-server", "--bind", "127.0.0.1", "--port", str(redis), "--save", "", "--appendonly", "no")
    s = Service(build, "--auth", "--admin-key-file", work + "/key", "--redis", f"redis://127.0.0.1:{redis}")
    s.call("PUT", "/v1/admin/tenants/vision", {"visibility": "private"}, key=ADMIN)
    key = json.loads(s.call("POST", "/v1/admin/keys", {"tenant": "vision", "scopes": ["read", "compile"]}, key=ADMIN)[2])["key"]
    relu = {"op": "Relu", "inputs": [{"name": "x", "dtype": "f32", "shape": [1000]}], "target": "host"}
    check("a kernel of a tenant", s.call("POST", "/v1/compile", relu, key=key)[0] == 200)

    rules = os.path.abspath("packaging/prometheus/alerts.yml")
    port = free_port()
    text = open("packaging/prometheus/prometheus.yml").read()
    for a, b in ("kilnd:8787", f"127.0.0.1:{s.port}"), ("/run/secrets/admin_key", work + "/key"), ("[alerts.yml]", f"[{rules}]"), ("15s", "1s"):
        check("prometheus.yml has " + a, a in text)
        text = text.replace(a, b)
    with open(work + "/prometheus.yml", "w") as f: f.write(text)
    promtool("check", "config", work + "/prometheus.yml")
    promtool("check", "rules", rules)
    promtool("test", "rules", os.path.abspath("tests/data/alerts_test.yml"))
    until(20, lambda: b"tenant=\"vision\"" in s.call("GET", "/metrics", key=ADMIN)[2])
    metrics = s.call("GET", "/metrics", key=ADMIN)[2].decode()
    promtool("check", "metrics", input=metrics)
    check("not without a key", s.call("GET", "/metrics")[0] == 401)

    start("prometheus", "--config.file", work + "/prometheus.yml", "--storage.tsdb.path", work + "/tsdb", "--web.listen-address", f"127.0.0.1:{port}")
    def up():
        try: return [t["health"] for t in ask("targets")["activeTargets"]] == ["up"]
        except OSError: return False
    check("the target is up", until(60, up), open(work + "/prometheus").read()[-2000:])
    loaded = [r["name"] for g in ask("rules")["groups"] for r in g["rules"]]
    check("the rules are loaded", loaded == re.findall(r"alert: (\w+)", open(rules).read()), loaded)
    until(10, lambda: series('kiln_jobs{tenant="vision"}'))
    for name, labels in PROMISED.items():
        got = series(name) or series(name + "_count")
        check("metric " + name, any(labels <= set(x["metric"]) for x in got), got[:2]) # a label without text is none
    check("some were promised", len(PROMISED) >= 16, PROMISED)
    named = set(re.findall(r"kiln_[a-z_]+", " ".join(re.findall(r"expr: (.*)", open(rules).read()))))
    check("rules ask for what there is", all(series(n) for n in named), [n for n in named if not series(n)])
    check("a job of the tenant", series('kiln_jobs{tenant="vision",state="succeeded"}')[0]["value"][1] == "1", series("kiln_jobs > 0"))
    check("bytes of the store", float(series('kiln_store_bytes{tier="sqlite"}')[0]["value"][1]) > 1000 or s.store[0] != "--data")
finally:
    for p in running[::-1]:
        p.terminate()
        p.wait(30)
    if s: check("stop", s.stop() == 0)
sys.exit(check.end())
