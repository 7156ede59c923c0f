"""A fleet on a bad day: services and workers over faulty connections to PostgreSQL and Redis, killed at random, with a toolchain that hangs, exits or
writes garbage, with clocks that jump and disks that are full; afterwards the log of the fleet and the store are checked. Same SEED, same faults at the same
times (not the same interleaving). usage: [NETNS=1] chaos.py BUILD SECONDS SEED [SERVICES WORKERS KEYS]"""
import atexit, http.client, json, os, pathlib, random, shutil, signal, subprocess, sys, tempfile, threading, time
from machine import Clocks, Disks
from places import Loopback, Namespaces
sys.path.append("tests")
from free_port import free_port

build, seconds, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
nservices, nworkers, nkeys = (int(x) for x in (sys.argv[4:7] or (3, 4, 2000)))
rng = random.Random(seed)
CALM_S = 8
LEASE_MS, WAIT_S, HEAL_S, CLIENTS, QUEUERS = 2000, 8, 30, 6, 2
work = pathlib.Path(tempfile.mkdtemp(prefix="kiln-chaos-"))
work.chmod(0o755)
began = time.time()
problems, faults = [], []

def say(*a): print(f"{time.time() - began:6.1f}", *a, flush=True)
def wrong(text):
    problems.append(text)
    say("WRONG", text)

names = [f"service{i}" for i in range(nservices)] + [f"worker{i}" for i in range(nworkers)]
netns = os.environ.get("NETNS") == "1"

# ---- servers ----
pg_bin = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
pg_port, redis_port = free_port(), free_port()
as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", f"HOME={work}/pg"] if os.getuid() == 0 else []
live = {}

def spawn(name, *argv, **more):
    if name in live and live[name].poll() is None: return live[name] # two faults at once: it is there again already
    live[name] = subprocess.Popen([str(a) for a in argv], stderr=open(work / f"{name}.log", "a"), stdout=more.pop("stdout", subprocess.DEVNULL),
                                  start_new_session=True, **more)
    return live[name]

def start_pg():
    spawn("pg", *as_nobody, pg_bin / "postgres", "-D", work / "pg/data", "-p", pg_port, "-c", f"listen_addresses=127.0.0.1,{place.databases}", "-c",
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
    spawn("redis", "redis-server", "--protected-mode", "no", "--bind", *{"127.0.0.1", place.databases}, "--port", redis_port, "--save", "", "--appendonly", "no", "--dir", work)

try:
    place = Namespaces(work, pg_port, redis_port, spawn, names) if netns else Loopback(work, pg_port, redis_port, spawn)
except PermissionError as e:
    print(f"no network namespaces on this machine: {e}")
    sys.exit(77)
clocks, disks = Clocks(work), Disks(work, ["pg", *names])
atexit.register(disks.close)
atexit.register(place.close)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
missing = place.missing + clocks.missing + disks.missing
if missing: print("# not on this machine: " + "; ".join(missing), flush=True)
(work / "pg").mkdir(exist_ok=True)
if os.getuid() == 0: shutil.chown(work / "pg", "nobody", "nogroup")
subprocess.run([*as_nobody, pg_bin / "initdb", "-D", work / "pg/data", "-U", "kiln", "-A", "trust", "--no-sync"], stdout=subprocess.DEVNULL, check=True)
with open(work / "pg/data/pg_hba.conf", "a") as f: f.write("host all all 10.0.0.0/8 trust\n")
start_pg()
start_redis()
wait_pg()

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
ports = [place.port(f"service{i}") for i in range(nservices)]
def start(name, program, *flags):
    (work / name / "tmp").mkdir(parents=True, exist_ok=True)
    spawn(name, *place.prefix(name), build + program, *flags, "--data", work / name / "data", "--postgres",
          f"postgresql://kiln@{place.address(name, 'pg')}/postgres", "--redis", f"redis://{place.address(name, 'redis')}", "--lease-ms", LEASE_MS,
          env={**env, "TMPDIR": str(work / name / "tmp"), **clocks.env(name)})
def start_service(i):
    name = f"service{i}"
    start(name, "/kilnd", "--listen", f"{place.host(name)}:{ports[i]}", "--hwspecs", "hwspecs", "--socket", "none", "--deadline-ms", WAIT_S * 1000,
          "--wait-ms", WAIT_S * 1000, f"--compile-here={0 if i == 2 else 1}", *place.flags(name))
def start_worker(i):
    start(f"worker{i}", "/kiln-worker", "run", "--name", f"worker{i}", "--slots", 1, "--deadline-ms", 5000, "--kinds", "compile,verify")
for i in range(nservices): start_service(i)
for i in range(nworkers): start_worker(i)

# ---- clients ----
stop = threading.Event()
lock = threading.Lock()
answers = {"ok": 0, "later": 0, "problem": 0, "gone": 0}
kept, slowest, untouched = set(), 0.0, []

# How much later than asked this process runs, added up: what a busy machine keeps from it, and from the fleet beside it.
stalled, ticked = 0.0, time.monotonic()
def watch_stalls():
    global stalled, ticked
    while True:
        time.sleep(0.02)
        with stalling:
            now = time.monotonic()
            stalled += max(0.0, now - ticked - 0.05)
            ticked = now
def stall():
    """Seconds so far: also of a stall that has just ended, and that the watcher, of all threads, is the last to notice."""
    with stalling: return stalled + max(0.0, time.monotonic() - ticked - 0.05)
stalling = threading.Lock()
threading.Thread(target=watch_stalls, daemon=True).start()

def ask(n, service, prefer=f"wait={WAIT_S}"):
    body = json.dumps({"op": ("Relu", "Tanh", "Sigmoid", "Neg")[n % 4], "inputs": [{"name": "a", "dtype": "f32", "shape": [3 + n // 4, 7]}],
                       "target": "host"})
    c = http.client.HTTPConnection(place.host(f"service{service}"), ports[service], timeout=WAIT_S * 3)
    try:
        c.request("POST", "/v1/compile", body, {"Content-Type": "application/json", "Prefer": prefer})
        r = c.getresponse()
        return r.status, json.loads(r.read() or b"{}")
    finally: c.close()

def queuer(i):
    """Puts compiles of keys that nobody has asked for into the queue and does not wait for them, so that there is always something owed and leased."""
    r = random.Random(seed * 1000 + 500 + i)
    while not stop.is_set():
        with lock: n = untouched.pop() if untouched else r.randrange(nkeys)
        try:
            status, _ = ask(n, r.randrange(nservices), "respond-async")
            if status >= 500 and status not in (500, 502, 503, 504, 507): wrong(f"status {status}")
        except Exception: pass
        stop.wait(r.uniform(0.2, 1.0))

def client(i):
    global slowest
    r = random.Random(seed * 1000 + i)
    while not stop.is_set():
        at, before, answered = time.monotonic(), stall(), True
        try:
            service = r.randrange(nservices)
            with lock: n = untouched.pop() if untouched and r.random() < 0.7 else r.randrange(nkeys)
            status, body = ask(n, service)
            kind = "ok" if status == 200 else "later" if status == 202 else "problem"
            if status >= 500 and status not in (500, 502, 503, 504, 507): wrong(f"status {status}")
            if status == 200:
                with lock: kept.add(body["key"])
        except TimeoutError: kind, answered = "gone", False
        except Exception: kind = "gone"
        took = time.monotonic() - at
        late = took - (stall() - before) > WAIT_S + 1
        if late and not answered: wrong("a request had no answer at all")
        elif late and kind != "gone": wrong(f"service{service} answered {kind} after {took:.1f} s, {WAIT_S} s were asked for")
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
    def restarted():
        p.wait()
        if live["pg"] is p: start_pg()
    later(rng.uniform(0.2, 2), restarted)

caught = 0
def kill_holder():
    """Of a lease that is held right now: who holds it never ends the job, somebody else must."""
    global caught
    try: held = sql("SELECT worker FROM kiln_job WHERE state IN (3, 4) AND lease_until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY id")
    except RuntimeError: return # no database to ask
    if not held: return
    holder = rng.choice(held)["worker"]
    name = holder if holder in live else next((s for s in names if holder.endswith(f"-{pid_of(s)}")), None)
    if name is None or live[name].poll() is not None: return
    caught += 1
    kill(name, lambda: again(name))

def pid_of(name):
    """Of the program itself: `ip netns exec` becomes it, so the pid stays."""
    return live[name].pid if name in live else 0

def freeze(name):
    p = live[name]
    if p.poll() is not None: return
    os.kill(p.pid, signal.SIGSTOP)
    later(rng.uniform(0.5, 3 if name == "redis" else 4), lambda: p.poll() is None and os.kill(p.pid, signal.SIGCONT))

def link(kind): later(rng.uniform(0.5, 3), place.hurt(kind, rng))

def again(name):
    if name == "pg": start_pg()
    else: (start_service if name.startswith("service") else start_worker)(int(name[-1]))

def fill_disk(name):
    if name not in disks.at: return
    disks.full(name)
    def room():
        disks.free(name)
        if name == "pg" and live[name].poll() is not None: again(name) # it ends itself when its log cannot be written
    later(rng.uniform(1, 4), room)

def toolchain(how):
    mode.write_text(how)
    later(rng.uniform(0.5, 2), lambda: mode.write_text("ok"))

menu = [
    ("kill service", 3, lambda: (lambda i: kill(f"service{i}", lambda: start_service(i)))(rng.randrange(nservices))),
    ("kill worker", 4, lambda: (lambda i: kill(f"worker{i}", lambda: start_worker(i)))(rng.randrange(nworkers))),
    ("kill who holds a lease", 5, kill_holder),
    ("freeze worker", 2, lambda: freeze(f"worker{rng.randrange(nworkers)}")),
    ("freeze redis", 1, lambda: freeze("redis")),
    ("flush redis", 1, lambda: subprocess.run(["redis-cli", "-p", str(redis_port), "flushall"], capture_output=True, timeout=5)),
    ("kill redis", 1, lambda: kill("redis", start_redis)),
    ("restart postgres", 1, restart_pg),
    ("cut", 2, lambda: link("cut")),
    ("delay", 2, lambda: link("delay")),
    ("black hole", 2, lambda: link("hole")),
    ("refuse", 1, lambda: link("refuse")),
    ("clock", 3, lambda: clocks.jump(rng.choice(names), rng)),
    ("disk of service", 2, lambda: fill_disk(f"service{rng.randrange(nservices)}")),
    ("disk of worker", 2, lambda: fill_disk(f"worker{rng.randrange(nworkers)}")),
    ("disk of postgres", 1, lambda: fill_disk("pg")),
    ("toolchain", 2, lambda: toolchain(rng.choice(["hang", "exit", "garbage"]))),
]

def storm(until):
    """Every kind once, in some order, then as the weights say, in waves: in between the fleet can be asked for leases, and only who holds one is killed."""
    first = rng.sample(menu, len(menu))
    turn = time.monotonic() + 12
    while time.monotonic() < until:
        time.sleep(rng.uniform(0.2, 0.8 if first else 1.2))
        if time.monotonic() > turn + CALM_S: turn = time.monotonic() + rng.uniform(6, 14)
        if not first and time.monotonic() > turn:
            time.sleep(rng.uniform(0, 1))
            faults.append("kill who holds a lease")
            kill_holder()
            continue
        name, _, act = first.pop() if first else rng.choices(menu, [w for _, w, _ in menu])[0]
        faults.append(name)
        try: act()
        except subprocess.TimeoutExpired: pass

def heal():
    for t in timers: t.join()
    place.heal()
    disks.heal()
    mode.write_text("ok") # clocks stay as wrong as they are
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

untouched.extend(random.Random(seed).sample(range(nkeys), nkeys))
threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)] + [threading.Thread(target=queuer, args=(i,)) for i in range(QUEUERS)]
try:
    for i in range(nservices):
        for _ in range(200):
            try:
                c = http.client.HTTPConnection(place.host(f"service{i}"), ports[i], timeout=2)
                c.request("GET", "/readyz")
                if c.getresponse().status == 200: break
            except OSError: pass
            time.sleep(0.05)
        else: raise SystemExit(f"service{i} does not start:\n" + (work / f"service{i}.log").read_text()[-1000:])
    for t in threads: t.start()
    storm(time.monotonic() + seconds)
    heal()
    healed = time.time()
    stop.set()
    for t in threads: t.join()
    while True:
        before = len(problems)
        njobs, owed, events = check_history()
        lost = check_store()
        if len(problems) > before or (not owed and not lost) or time.time() - healed > HEAL_S: break
        time.sleep(0.5)
    if owed: wrong(f"{len(owed)} jobs have not ended {HEAL_S} s after the last fault: {owed[:3]}")
    if lost: wrong(f"{len(lost)} kernels were answered and are in no store: {sorted(lost)[:3]}")
    after = time.time() - healed
    for i in range(nservices):
        status, body = ask(nkeys + i, i)
        if status != 200: wrong(f"service {i} answers {status} after the healing: {body}")
        off, name = clocks.off(f"service{i}"), f"service{i}"
        c = http.client.HTTPConnection(place.host(name), ports[i], timeout=10)
        c.request("GET", "/v1/status")
        seen = json.loads(c.getresponse().read())["at_ms"] / 1000 - time.time()
        if abs(seen - off) > 60: wrong(f"{name}: its clock is {seen:.0f} s off, it should be {off} s")
finally:
    stop.set()
    for t in timers: t.cancel()
    for name, p in live.items():
        if p.poll() is None:
            try: os.kill(p.pid, signal.SIGCONT); p.kill() if not name.startswith("pg") else p.send_signal(signal.SIGQUIT)
            except ProcessLookupError: pass
    for p in live.values(): p.wait()
    place.close()
    disks.close()
kinds = {}
for e in events: kinds[e["kind"]] = kinds.get(e["kind"], 0) + 1
stored = {}
for e in events: stored[e["key"]] = stored.get(e["key"], 0) + (e["kind"] == "kernel")
if stored: say(f"{sum(n > 1 for n in stored.values())} keys built more than once, at most {max(stored.values())} times: by who could not ask for a lease, or lost it")
claims = {}
for e in events:
    if e["kind"] == "leased": claims.setdefault(e["job"], []).append(e["worker"])
over = sum(len(c) > 1 for c in claims.values())
by_job = sum(e["kind"] == "succeeded" for e in events)
say(f"{len(claims)} jobs were leased, {over} more than once; {caught} holders of a lease were killed; {by_job} of {kinds.get('kernel', 0)} kernels were built under a lease; "
    f"{nkeys - len(untouched)} of {nkeys} keys were asked for")
if seconds >= 300 and not (over and caught): wrong("no lease was lost: this run says nothing about taking over")
say(f"{sum(answers.values())} requests {answers}, slowest {slowest:.1f} s; this process was kept waiting {stalled:.0f} s by the machine; {len(faults)} faults; {njobs} jobs {kinds}; whole after {after:.1f} s")
if problems or os.environ.get("KEEP"): say(f"{len(problems)} problems; logs are in {work}")
else: shutil.rmtree(work)
print(f"# chaos: {seconds} s, seed {seed}, {len(faults)} faults, {njobs} jobs, {len(problems)} problems")
sys.exit(1 if problems else 0)
