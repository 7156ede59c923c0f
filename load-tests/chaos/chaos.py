"""A fleet on a bad day: services and workers over faulty connections to PostgreSQL and Redis, killed at random, with a toolchain that hangs, exits or
writes garbage; afterwards the log of the fleet and the store are checked. Same SEED, same faults at the same times (not the same interleaving).
usage: chaos.py BUILD SECONDS SEED [SERVICES WORKERS KEYS]"""
import hashlib, http.client, json, os, pathlib, random, shutil, signal, stat, subprocess, sys, tempfile, threading, time
sys.path.append("tests")
from free_port import free_port

build, seconds, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
nservices, nworkers, nkeys = (int(x) for x in (sys.argv[4:7] or (3, 4, 2000)))
here = pathlib.Path(__file__).parent
rng = random.Random(seed)
LEASE_MS, WAIT_S, HEAL_S, CLIENTS = 2000, 8, 30, 6
work = pathlib.Path(tempfile.mkdtemp(prefix="kiln-chaos-"))
work.chmod(0o755)
began = time.time()
problems, faults = [], []

def say(*a): print(f"{time.time() - began:6.1f}", *a, flush=True)
def wrong(text):
    problems.append(text)
    say("WRONG", text)

# ---- servers ----
pg_bin = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
pg_port, redis_port = free_port(), free_port()
routes = [("pg", free_port(), pg_port), ("pg", free_port(), pg_port), ("redis", free_port(), redis_port), ("redis", free_port(), redis_port)]
as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", f"HOME={work}/pg"] if os.getuid() == 0 else []
live = {}

def spawn(name, *argv, **more):
    live[name] = subprocess.Popen([str(a) for a in argv], stderr=open(work / f"{name}.log", "a"), stdout=more.pop("stdout", subprocess.DEVNULL),
                                  start_new_session=True, **more)
    return live[name]

def start_pg():
    spawn("pg", *as_nobody, pg_bin / "postgres", "-D", work / "pg/data", "-p", pg_port, "-c", "listen_addresses=127.0.0.1", "-c",
          f"unix_socket_directories={work}/pg", "-c", "shared_buffers=32MB", "-c", "max_connections=120")

def sql(text):
    r = subprocess.run([pg_bin / "psql", "-h", "127.0.0.1", "-p", str(pg_port), "-U", "kiln", "-d", "postgres", "-X", "-A", "-t", "-c",
                        f"SELECT row_to_json(x) FROM ({text}) x"], capture_output=True, text=True)
    if r.returncode: raise RuntimeError(r.stderr)
    return [json.loads(line) for line in r.stdout.splitlines() if line]

def wait_pg():
    for _ in range(200):
        if subprocess.run([pg_bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(pg_port)]).returncode == 0: return
        time.sleep(0.1)
    raise SystemExit("PostgreSQL does not start")

def start_redis():
    spawn("redis", "redis-server", "--bind", "127.0.0.1", "--port", redis_port, "--save", "", "--appendonly", "no", "--dir", work)

(work / "pg").mkdir()
if os.getuid() == 0: shutil.chown(work / "pg", "nobody", "nogroup")
subprocess.run([*as_nobody, pg_bin / "initdb", "-D", work / "pg/data", "-U", "kiln", "-A", "trust", "--no-sync"], stdout=subprocess.DEVNULL, check=True)
start_pg()
start_redis()
wait_pg()
subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-o", work / "proxy", here / "proxy.c", "-lpthread"], check=True)
proxy = spawn("proxy", work / "proxy", *(f"{at}=127.0.0.1:{to}" for _, at, to in routes), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert proxy.stdout.readline() == "ready\n"

def route(i, command):
    proxy.stdin.write(f"{i} {command}\n")
    proxy.stdin.flush()

# ---- a toolchain that can be made to fail ----
(work / "tc/bin").mkdir(parents=True)
mode = work / "tc/mode"
mode.write_text("ok")
(work / "tc/bin/cc").write_text(f"""#!/bin/sh
case $(cat {mode} 2>/dev/null) in
hang) case "$*" in *--version*) ;; *) sleep 60 ;; esac ;;
exit) case "$*" in *--version*) ;; *) exit 3 ;; esac ;;
garbage) o=; for a; do [ "$o" = next ] && {{ echo garbage > "$a"; exit 0; }}; [ "$a" = -o ] && o=next; done ;;
esac
exec {shutil.which("cc")} "$@"
""")
(work / "tc/bin/cc").chmod(0o755)

# ---- the fleet ----
env = {**os.environ, "KILN_CC": str(work / "tc/bin/cc"), "KILN_NVRTC": "/nonexistent"}
ports = [free_port() for _ in range(nservices)]
def start_service(i):
    spawn(f"service{i}", build + "/kilnd", "--listen", f"127.0.0.1:{ports[i]}", "--data", work / f"s{i}", "--hwspecs", "hwspecs", "--postgres",
          f"postgresql://kiln@127.0.0.1:{routes[0][1]}/postgres", "--redis", f"redis://127.0.0.1:{routes[2][1]}", "--lease-ms", LEASE_MS,
          "--deadline-ms", WAIT_S * 1000, "--wait-ms", WAIT_S * 1000, f"--compile-here={0 if i == 2 else 1}", env=env)
def start_worker(i):
    spawn(f"worker{i}", build + "/kiln-worker", "run", "--name", f"worker{i}", "--data", work / f"w{i}", "--postgres",
          f"postgresql://kiln@127.0.0.1:{routes[1][1]}/postgres", "--redis", f"redis://127.0.0.1:{routes[3][1]}", "--lease-ms", LEASE_MS,
          "--slots", 1, "--deadline-ms", 5000, "--kinds", "compile,verify", env=env)
for i in range(nservices): start_service(i)
for i in range(nworkers): start_worker(i)

# ---- clients ----
stop = threading.Event()
lock = threading.Lock()
answers = {"ok": 0, "later": 0, "problem": 0, "gone": 0}
kept, slowest = set(), 0.0

def ask(n, service):
    body = json.dumps({"op": ("Relu", "Tanh", "Sigmoid", "Neg")[n % 4], "inputs": [{"name": "a", "dtype": "f32", "shape": [3 + n // 4, 7]}],
                       "target": "host"})
    c = http.client.HTTPConnection("127.0.0.1", ports[service], timeout=WAIT_S * 3)
    try:
        c.request("POST", "/v1/compile", body, {"Content-Type": "application/json", "Prefer": f"wait={WAIT_S}"})
        r = c.getresponse()
        return r.status, json.loads(r.read() or b"{}")
    finally: c.close()

def client(i):
    global slowest
    r = random.Random(seed * 1000 + i)
    while not stop.is_set():
        at = time.time()
        try:
            status, body = ask(r.randrange(nkeys), r.randrange(nservices))
            kind = "ok" if status == 200 else "later" if status == 202 else "problem"
            if status >= 500 and status not in (500, 502, 503, 504): wrong(f"status {status}")
            if status == 200:
                with lock: kept.add(body["key"])
        except TimeoutError:
            wrong("a request had no answer at all")
            kind = "gone"
        except Exception: kind = "gone"
        took = time.time() - at
        if kind != "gone" and took > WAIT_S + 1: wrong(f"an answer took {took:.1f} s, {WAIT_S} s were asked for")
        with lock:
            answers[kind] += 1
            slowest = max(slowest, took if kind != "gone" else 0)
        if kind != "ok": time.sleep(0.05)

# ---- faults ----
def kill(name, restart):
    p = live[name]
    if p.poll() is None: os.kill(p.pid, signal.SIGKILL)
    p.wait()
    later(rng.uniform(0.1, 1), restart)

timers = []
def later(s, f):
    t = threading.Timer(s, f)
    timers.append(t)
    t.start()

def restart_pg():
    p = live["pg"]
    p.send_signal(rng.choice([signal.SIGINT, signal.SIGQUIT]))
    def again():
        p.wait()
        start_pg()
    later(rng.uniform(0.2, 2), again)

def freeze(name):
    p = live[name]
    if p.poll() is not None: return
    os.kill(p.pid, signal.SIGSTOP)
    later(rng.uniform(0.5, 3 if name == "redis" else 4), lambda: p.poll() is None and os.kill(p.pid, signal.SIGCONT))

def link(command):
    i = rng.randrange(len(routes))
    route(i, command)
    later(rng.uniform(0.5, 3), lambda: route(i, "pass"))
    return f"{routes[i][0]}{i}"

def toolchain(how):
    mode.write_text(how)
    later(rng.uniform(0.5, 2), lambda: mode.write_text("ok"))

menu = [
    ("kill service", 3, lambda: (lambda i: kill(f"service{i}", lambda: start_service(i)))(rng.randrange(nservices))),
    ("kill worker", 4, lambda: (lambda i: kill(f"worker{i}", lambda: start_worker(i)))(rng.randrange(nworkers))),
    ("freeze worker", 2, lambda: freeze(f"worker{rng.randrange(nworkers)}")),
    ("freeze redis", 1, lambda: freeze("redis")),
    ("flush redis", 1, lambda: subprocess.run(["redis-cli", "-p", str(redis_port), "flushall"], capture_output=True, timeout=5)),
    ("kill redis", 1, lambda: kill("redis", start_redis)),
    ("restart postgres", 1, restart_pg),
    ("cut", 2, lambda: link("cut")),
    ("delay", 2, lambda: link(f"delay {rng.randrange(20, 400)}")),
    ("black hole", 2, lambda: link("hole")),
    ("refuse", 1, lambda: link("refuse")),
    ("toolchain", 2, lambda: toolchain(rng.choice(["hang", "exit", "garbage"]))),
]

def storm(until):
    while time.time() < until:
        time.sleep(rng.uniform(0.2, 1.2))
        name, _, act = rng.choices(menu, [w for _, w, _ in menu])[0]
        faults.append(name)
        try: act()
        except subprocess.TimeoutExpired: pass

def heal():
    for t in timers: t.join()
    for i in range(len(routes)): route(i, "pass")
    mode.write_text("ok")
    if live["pg"].poll() is not None: start_pg()
    if live["redis"].poll() is not None: start_redis()
    wait_pg()
    for i in range(nservices):
        if live[f"service{i}"].poll() is not None: start_service(i)
    for i in range(nworkers):
        if live[f"worker{i}"].poll() is not None: start_worker(i)

# ---- what must hold afterwards ----
ENDS = {"succeeded", "failed", "cancelled", "expired", "dead"}
LEASED = {"leased", "running", "progress", "wish"}

def check_history():
    """Every job ends exactly once; epochs grow by one a claim; what a worker writes carries the epoch of its lease; a lease is taken away only when it
    has lapsed; a key has one live job at a time."""
    events = sql("SELECT * FROM kiln_event ORDER BY seq")
    if [e["seq"] for e in events] != list(range(1, len(events) + 1)): wrong("the log has gaps")
    jobs, live_of = {}, {}
    for e in events:
        if not e["job"]: continue
        x = jobs.setdefault(e["job"], {"state": None, "epoch": 0, "until": 0, "worker": "", "key": e["key"], "ends": 0})
        kind, name = e["kind"], e["job"]
        if x["ends"]: wrong(f"{name}: {kind} after its end")
        if kind == "queued" and x["state"] is None:
            if live_of.get(e["key"]): wrong(f"{e['key']}: two live jobs")
            live_of[e["key"]] = name
        elif kind == "leased":
            if e["epoch"] != x["epoch"] + 1: wrong(f"{name}: epoch {e['epoch']} after {x['epoch']}")
            if x["state"] in LEASED: wrong(f"{name}: claimed while leased")
            x.update(epoch=e["epoch"], worker=e["worker"], until=json.loads(e["data"])["until"])
        elif e["epoch"] != x["epoch"] or (x["epoch"] and e["worker"] != x["worker"]): wrong(f"{name}: {kind} by another lease")
        if kind == "retry_wait" and "lapsed" in e["data"] and e["at_ms"] < x["until"]: wrong(f"{name}: a valid lease was taken away")
        if kind in ENDS:
            x["ends"] += 1
            if live_of.pop(e["key"], None) != name: wrong(f"{name}: ended, but it was not the live one")
        if kind not in ("progress", "wish", "changed"): x["state"] = kind
    owed = [j for j, x in jobs.items() if not x["ends"]]
    return len(jobs), owed, events

def check_store():
    """What was answered is there, and whole."""
    for b in sql("SELECT digest, encode(sha256(bytes), 'hex') AS actual FROM kiln_blob"):
        if b["digest"] != b["actual"]: wrong(f"artifact {b['digest']} has other bytes")
    have = {r["key"] for r in sql("SELECT DISTINCT key FROM kiln_record")}
    return kept - have

threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
try:
    for i in range(nservices):
        for _ in range(200):
            try:
                c = http.client.HTTPConnection("127.0.0.1", ports[i], timeout=2)
                c.request("GET", "/readyz")
                if c.getresponse().status == 200: break
            except OSError: pass
            time.sleep(0.05)
        else: raise SystemExit(f"service{i} does not start:\n" + (work / f"service{i}.log").read_text()[-1000:])
    for t in threads: t.start()
    storm(time.time() + seconds)
    heal()
    healed = time.time()
    stop.set()
    for t in threads: t.join()
    while True:
        njobs, owed, events = check_history() if not problems else (0, [], [])
        lost = check_store() if not problems else set()
        if problems or (not owed and not lost) or time.time() - healed > HEAL_S: break
        time.sleep(0.5)
    if owed: wrong(f"{len(owed)} jobs have not ended {HEAL_S} s after the last fault: {owed[:3]}")
    if lost: wrong(f"{len(lost)} kernels were answered and are in no store: {sorted(lost)[:3]}")
    after = time.time() - healed
    for i in range(nservices):
        status, body = ask(nkeys + i, i)
        if status != 200: wrong(f"service {i} answers {status} after the healing: {body}")
finally:
    stop.set()
    for t in timers: t.cancel()
    for name, p in live.items():
        if p.poll() is None:
            try: os.kill(p.pid, signal.SIGCONT); p.kill() if not name.startswith("pg") else p.send_signal(signal.SIGQUIT)
            except ProcessLookupError: pass
    for p in live.values(): p.wait()
kinds = {}
for e in events: kinds[e["kind"]] = kinds.get(e["kind"], 0) + 1
say(f"{sum(answers.values())} requests {answers}, slowest {slowest:.1f} s; {len(faults)} faults; {njobs} jobs {kinds}; whole after {after:.1f} s")
if problems or os.environ.get("KEEP"): say(f"{len(problems)} problems; logs are in {work}")
else: shutil.rmtree(work)
print(f"# chaos: {seconds} s, seed {seed}, {len(faults)} faults, {njobs} jobs, {len(problems)} problems")
sys.exit(1 if problems else 0)
