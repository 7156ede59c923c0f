#!/usr/bin/env python3
"""The service under load against what is held up to it, as one table: usage: bench.py BUILD [--only reads,hits,paced,redis,held,growth] [--seconds 1] [--rounds 5]
[--connections 1,16,128] [--held 10000] [--requests 200000] [--markdown] [--realtime]. Rounds of the two sides alternate; rates are medians of rounds, so is the
ratio of the processor's time a request by round, which is the judge: rates of a machine that others use are not. What a part needs and is not there (nginx, redis-server, wrk) is said and left out. --realtime
runs servers and clients in a real-time class (root), so that what else the machine does counts less: for a machine that is not quiet, and only shortly.
Status 1: a goal was missed."""
import argparse, json, os, re, resource, selectors, shutil, socket, statistics, subprocess, sys, tempfile, time, urllib.request

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../tests"))
from free_port import free_port

GOALS = {"reads": 0.9, "hits": 0.6, "paced": 3000, "redis": 0.5, "idle": 30, "growth": 1.0}
parser = argparse.ArgumentParser()
parser.add_argument("build")
PARTS = ("reads", "hits", "paced", "redis", "held", "growth") # functions below
parser.add_argument("--only", default=",".join(PARTS))
parser.add_argument("--seconds", type=float, default=1)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--connections", default="1,16,128")
parser.add_argument("--held", type=int, default=10000)
parser.add_argument("--requests", type=int, default=200000)
parser.add_argument("--markdown", action="store_true")
parser.add_argument("--realtime", action="store_true")
args = parser.parse_args()
for part in args.only.split(","):
    if part not in PARTS: parser.error(f"--only: there is no part '{part}', but {', '.join(PARTS)}")
args.connections = [int(c) for c in args.connections.split(",")]
work = tempfile.mkdtemp(prefix="kiln-bench.")
os.chmod(work, 0o755)
running, rows = [], []
REQUEST = {"op": "MatMul", "inputs": [{"name": n, "dtype": "f32", "shape": [512, 512]} for n in "ab"], "target": "host"}
BODY = json.dumps(REQUEST, separators=(",", ":"))
LARGE = [json.dumps({**REQUEST, "inputs": [{"name": n, "dtype": "f32", "shape": s} for n, s in inputs], "target": "x86-64-avx512", **more})
         for inputs, more in (((("a", [511, 513]), ("b", [513, 517])), {}),
                              ((("x", [1, 64, 56, 56]), ("w", [64, 64, 3, 3])), {"op": "Conv", "attrs": {"pads": [1, 1, 1, 1]}}))]
SENT_AS_FILE = 16384 # bytes: sources of some 20 and 40 KB, on any machine, go out in another way than short ones (service/sent_posix.c)

CLASS = ["chrt", "-r", "5"] if args.realtime else []
def start(command, **more):
    p = subprocess.Popen(CLASS + command, **more)
    running.append(p)
    return p

def end(p):
    running.remove(p)
    p.terminate()
    p.wait(30)

def row(what, value, goal, reached):
    rows.append((what, value, goal, {True: "yes", False: "NO", None: ""}[reached], f"{os.getloadavg()[0]:.1f}"))
    print(("| " + " | ".join(rows[-1]) + " |") if args.markdown else f"{what:<46}{value}   {goal:<22}{rows[-1][3]:<4}load {rows[-1][4]}", flush=True)

def cpu(p):
    """Seconds of processor time that the process has had."""
    f = open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

def memory(p, field="VmRSS"):
    return int(re.search(field + r":\s+(\d+)", open(f"/proc/{p.pid}/status").read()).group(1)) / 1024

class Service:
    def __init__(self, *flags):
        self.log = tempfile.mktemp(dir=work)
        data = tempfile.mkdtemp(dir=work)
        self.process = start([args.build + "/kilnd", "--listen", "127.0.0.1:0", "--data", data, "--hwspecs", "hwspecs", "--idle-seconds", "600", *flags],
                             stderr=open(self.log, "w"), env={k: v for k, v in os.environ.items() if not k.startswith("KILN_") or k == "KILN_NVRTC"})
        for _ in range(600):
            text = open(self.log).read()
            found = re.search(r'"127\.0\.0\.1:(\d+)"', text)
            if found and '"ready"' in text: break
            time.sleep(0.05)
        self.port = int(found.group(1))

    def ask(self, path, body=None):
        q = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body and body.encode(), {"Content-Type": "application/json"} if body else {})
        return urllib.request.urlopen(q, timeout=120).read()

def source_of(answer): return next(a["href"] for a in json.loads(answer)["artifacts"] if a["kind"] == "source")

def compiled(*flags):
    """A service that has one kernel in memory; its answer, the paths of the kernel and of its source."""
    s = Service(*flags)
    for _ in range(2): answer = s.ask("/v1/compile", BODY)
    return s, answer, "/v1/kernels/" + json.loads(answer)["key"], source_of(answer)

def wrk(port, path, connections, script=None, seconds=None):
    """Requests a second, and how many in all."""
    r = subprocess.run([*CLASS, "wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds or args.seconds))}s", "--timeout", "10s", *(["-s", script] if script else []),
                        f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True)
    if "Non-2xx" in r.stdout or "Socket errors" in r.stdout: raise SystemExit("wrk: " + r.stdout)
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", r.stdout).group(1)), int(re.search(r"(\d+) requests in", r.stdout).group(1))

def duel(path, connections, sides, script=None):
    """Rounds of both sides in turns: of each the median rate; of each the median of the processor's microseconds a request; the median of their ratio by round."""
    rates, spent = [[], []], [[], []]
    for _ in range(args.rounds):
        for i, (process, port) in enumerate(sides):
            before = cpu(process)
            rate, n = wrk(port, path, connections, script)
            rates[i].append(rate)
            spent[i].append((cpu(process) - before) * 1e6 / n)
    return [statistics.median(r) for r in rates], [statistics.median(c) for c in spent], statistics.median(b / a for a, b in zip(*spent))

def compare(name, key, path, connections, sides, other, script=None):
    (a, b), (ca, cb), ratio = duel(path, connections, sides, script)
    row(f"{name}, {connections} connections", f"{a:.0f}/s, {other} {b:.0f}/s: {a / b:.2f}; processor {ca:.1f} us, {cb:.1f} us: {ratio:.2f}", f">= {GOALS[key]} of {other}",
        ratio >= GOALS[key])
    peaks[(key, connections)] = max(peaks.get((key, connections), 0), a)

def post_script():
    path = work + "/post.lua"
    with open(path, "w") as f: f.write(f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [==[{BODY}]==]\n')
    return path

def build_tool(name, *libraries):
    out = f"{work}/{name}"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", out, f"{here}/{name}.c", *libraries], check=True)
    return out

def need(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    if missing: print("left out:", ", ".join(missing), "is not here", flush=True)
    return not missing

def nginx_with(s, paths):
    """nginx that serves what the service answers at these paths, as files: its process and its port."""
    port = free_port()
    for path in paths:
        os.makedirs(work + "/www" + os.path.dirname(path), exist_ok=True)
        with open(work + "/www" + path, "wb") as f: f.write(s.ask(path))
    with open(work + "/nginx.conf", "w") as f:
        f.write(f"""daemon off; master_process off; worker_processes 1; pid {work}/nginx.pid; error_log {work}/nginx.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; open_file_cache max=1000; default_type application/octet-stream;
{''.join(f'{t}_temp_path {work}/t_{t}; ' for t in ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))}
server {{ listen 127.0.0.1:{port}; root {work}/www; }} }}""")
    nginx = start(["nginx", "-c", work + "/nginx.conf", "-p", work], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    return nginx, port

# ---- the parts ----
def reads():
    if not need("nginx", "wrk"): return
    s, _, kernel, blob = compiled()
    large = [source_of(s.ask("/v1/compile", body)) for body in LARGE]
    nginx, port = nginx_with(s, (kernel, blob, *large))
    if any(os.path.getsize(work + "/www" + path) < SENT_AS_FILE for path in large): sys.exit("a large artifact is no large one any more")
    for name, path in ("kernel", kernel), ("artifact", blob), *(("artifact", path) for path in large):
        size = os.path.getsize(work + "/www" + path)
        for c in args.connections: compare(f"GET {name}, {size} bytes", "reads", path, c, [(s.process, s.port), (nginx, port)], "nginx")
    end(nginx)
    end(s.process)

def hits():
    if not need("wrk"): return
    s, answer, _, _ = compiled()
    with open(work + "/answer", "wb") as f: f.write(answer)
    port = free_port()
    bare = start([build_tool("bare", "-lmicrohttpd"), str(port), work + "/answer"], stdin=subprocess.PIPE)
    time.sleep(0.3)
    for c in args.connections:
        if c != 128: compare("POST /compile, a hit", "hits", "/v1/compile", c, [(s.process, s.port), (bare, port)], "bare", post_script())
    # at exactly 128 clients the library's own threads stall; 120 are as many
    if 128 in args.connections: compare("POST /compile, a hit", "hits", "/v1/compile", 120, [(s.process, s.port), (bare, port)], "bare", post_script())
    end(bare)
    end(s.process)

def paced():
    """Delays at half of the rate that closed-loop clients reached, from when a request was due; beside them, in turns, those of nginx with a file at the same rate:
    what the machine does to anyone."""
    if not need("wrk", "nginx"): return
    s, _, kernel, blob = compiled()
    nginx, port = nginx_with(s, (kernel, blob))
    pace, body, pauses = build_tool("pace"), work + "/body.json", build_tool("pauses", "-lpthread")
    lost, longest = subprocess.run([pauses, str(min(2, os.cpu_count() or 1)), "2"], capture_output=True, text=True, check=True).stdout.split()
    row("the machine itself: two threads that only read the clock", f"{lost} % of a thread's time in pauses, the longest {longest} ms", "", None)
    with open(body, "w") as f: f.write(BODY)
    for name, key, method, path, script in (("GET kernel", "reads", ["GET", kernel], kernel, None), ("GET artifact", "blobs", ["GET", blob], blob, None),
                                            ("POST /compile, a hit", "hits", ["POST", "/v1/compile", body], "/v1/compile", post_script())):
        for c in args.connections:
            peak = peaks.get((key, c)) or statistics.median(wrk(s.port, path, c, script)[0] for _ in range(3))
            got, beside = [], []
            for _ in range(args.rounds):
                for to, at, what in (got, s.port, method), (beside, port, ["GET", kernel if key == "hits" else path]):
                    r = subprocess.run([*CLASS, pace, str(at), str(c), str(peak / 2), str(args.seconds), *what], capture_output=True, text=True)
                    if r.stdout: to.append([float(x) for x in r.stdout.split()])
            rate, p50, p90, p99, p999, most = (statistics.median(x) for x in zip(*got))
            theirs = statistics.median(x[3] for x in beside)
            row(f"{name} at half of the peak, {c} connections", f"{rate:.0f}/s: p50 {p50:.0f} us, p90 {p90:.0f}, p99 {p99:.0f}, p99.9 {p999:.0f}; nginx p99 {theirs:.0f}: "
                f"{p99 / theirs:.2f}", "p99 < 3000 us", p99 < GOALS["paced"])
    end(nginx)
    end(s.process)

def redis():
    if not need("redis-server", "redis-benchmark"): return
    port, pool, size = free_port(), 4, 4096
    server = start(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", work], stdout=subprocess.DEVNULL)
    libraries = subprocess.run(["make", "-s", "B=" + args.build, "fuzz-lib"], capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    tool = build_tool("redis", "-I.", "-Icompiler", f"{args.build}/obj/libkilnd.a", f"{args.build}/libkiln.a", *libraries)
    time.sleep(0.5)
    subprocess.run(["redis-cli", "-p", str(port), "set", "x", "r" * (size + 1)], stdout=subprocess.DEVNULL, check=True)
    own, other, late = [], [], 0
    for _ in range(args.rounds):
        rate, lost = subprocess.run([*CLASS, tool, f"redis://127.0.0.1:{port}", str(size), str(args.seconds), str(pool)], capture_output=True, text=True, check=True).stdout.split()
        own.append(float(rate))
        late += int(lost)
        r = subprocess.run([*CLASS, "redis-benchmark", "-p", str(port), "-c", str(pool), "-n", str(int(10000 * args.seconds)), "--csv", "GET", "x"], capture_output=True, text=True, check=True)
        other.append(float(r.stdout.splitlines()[-1].split(",")[1].strip('"')))
    a, b = statistics.median(own), statistics.median(other)
    row(f"reads of {size} bytes from Redis, {pool} connections", f"{a:.0f}/s, digests checked, {late} without an answer in time; redis-benchmark {b:.0f}/s: {a / b:.2f}", f">= {GOALS['redis']}", a >= GOALS["redis"] * b)
    end(server)

ASK = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
def ask_all(sockets):
    """One request on each; how many were answered within 20 s."""
    sel, good, left = selectors.DefaultSelector(), 0, len(sockets)
    for s in sockets:
        s.sendall(ASK)
        sel.register(s, selectors.EVENT_READ)
    until = time.monotonic() + 20
    while left and time.monotonic() < until:
        for key, _ in sel.select(1):
            sel.unregister(key.fileobj)
            left -= 1
            good += key.fileobj.recv(4096).startswith(b"HTTP/1.1 200")
    sel.close()
    return good

def held():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard == resource.RLIM_INFINITY or hard < args.held + 600 else args.held + 600, hard))
    s = Service()
    time.sleep(1)
    idle, sockets, n = memory(s.process), [], args.held
    row("idle service", f"{idle:.1f} MB", f"< {GOALS['idle']} MB", idle < GOALS["idle"])
    began = time.monotonic()
    for at in range(0, n, 500):
        fresh = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(min(500, n - at))]
        sockets += fresh
        if ask_all(fresh) != len(fresh): raise SystemExit("a fresh connection was not answered")
    took, full = time.monotonic() - began, memory(s.process)
    began = time.monotonic()
    again = sum(ask_all(sockets[i:i + 500]) for i in range(0, n, 500))
    row(f"{n} keep-alive connections", f"opened and asked in {took:.1f} s, asked again in {time.monotonic() - began:.1f} s: {again} answers; {full:.0f} MB, {(full - idle) * 1024 / n:.1f} KB each",
        "all answered", again == n)
    for x in sockets: x.close()
    time.sleep(1.5)
    row("after they have gone", f"{memory(s.process):.1f} MB", "", None)
    end(s.process)

def growth():
    """Hits, a kernel, an artifact, a key that is not there and /livez in turns."""
    if not need("wrk"): return
    s, _, kernel, blob = compiled()
    with open(work + "/mix.lua", "w") as f:
        f.write(f'''local n, r = 0, {{}}
init = function() r = {{wrk.format("POST", "/v1/compile", {{["Content-Type"] = "application/json"}}, [==[{BODY}]==]), wrk.format("GET", "{kernel}"), wrk.format("GET", "{blob}"),
  wrk.format("GET", "/livez"), wrk.format("GET", "{kernel}", {{["Accept-Encoding"] = "zstd"}}), wrk.format("GET", "{kernel}/variants")}} end
request = function() n = n + 1; return r[n % #r + 1] end
''')
    wrk(s.port, "/", 16, work + "/mix.lua", 3)
    time.sleep(0.5)
    before, done, worst, began = memory(s.process), 0, 0, time.monotonic()
    while done < args.requests:
        left = args.requests - done
        done += wrk(s.port, "/", 16, work + "/mix.lua", 20 if left > 400000 else 3)[1]
        worst = max(worst, memory(s.process))
    after = memory(s.process)
    row(f"{done} requests in turns, {time.monotonic() - began:.0f} s", f"{before:.2f} MB before, {after:.2f} after, {worst:.2f} at most", "no growth", after < before + GOALS["growth"])
    end(s.process)

peaks = {}
try:
    if args.markdown: print("| what | got | goal | reached | load |\n| --- | --- | --- | --- | --- |")
    for part in args.only.split(","): globals()[part]()
finally:
    for p in list(running):
        p.terminate()
        p.wait(30)
    shutil.rmtree(work, ignore_errors=True)
sys.exit(1 if any(r[3] == "NO" for r in rows) else 0)
