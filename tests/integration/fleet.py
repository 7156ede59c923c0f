"""Two services on one PostgreSQL and Redis: one compile for one missing key, a follower that takes over when the leader dies, a quarantine and an improved
version that reach the memory of the other service at once. usage: fleet.py BUILD; servers from KILN_TEST_PG and KILN_TEST_REDIS."""
import http.client, json, os, re, shutil, signal, subprocess, sys, tempfile, threading, time

build = os.path.abspath(sys.argv[1])
pg, redis = os.environ.get("KILN_TEST_PG"), os.environ.get("KILN_TEST_REDIS")
if not pg or not redis:
    print("no servers are named")
    sys.exit(77)
work = tempfile.mkdtemp()
schema = f"fleet_{os.getpid()}"
psql = sorted(__import__("glob").glob("/usr/lib/postgresql/*/bin/psql"))[-1]
subprocess.run([psql, pg, "-q", "-c", f"CREATE SCHEMA {schema}"], check=True)
url = f"{pg}?options=-csearch_path%3D{schema}"
failed, running = 0, []

def check(name, ok, seen=""):
    global failed
    if not ok:
        failed += 1
        print("FAIL", name, seen)

def start(name, *more):
    log = open(f"{work}/{name}.log", "w")
    p = subprocess.Popen([build + "/kilnd", "--listen", "127.0.0.1:0", "--data", f"{work}/{name}", "--hwspecs", "hwspecs", "--postgres", url, "--redis", redis,
                          "--lease-ms", "2000", *more], stderr=log)
    running.append(p)
    for _ in range(400):
        text = open(f"{work}/{name}.log").read()
        if '"ready"' in text: return p, int(re.search(r'127\.0\.0\.1:(\d+)', text)[1])
        time.sleep(0.05)
    raise SystemExit("kilnd does not start:\n" + text)

def call(port, method, path, body=None, **headers):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request(method, path, body, headers)
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, r.getheader("Cache-Status") or "", data

def ask(port, n, out):
    body = json.dumps({"op": "MatMul", "inputs": [{"name": "a", "dtype": "f32", "shape": [n, 16]}, {"name": "b", "dtype": "f32", "shape": [16, 24]}], "target": "host"})
    try: out.append(call(port, "POST", "/v1/compile", body, **{"Content-Type": "application/json"}))
    except OSError as e: out.append((0, str(e), b""))

def both(n):
    a, b = [], []
    threads = [threading.Thread(target=ask, args=(p, n, o)) for p, o in ((one_port, a), (two_port, b))]
    for t in threads: t.start()
    for t in threads: t.join()
    return a[0], b[0]

def counter(port, name):
    return sum(int(line.split()[1]) for line in call(port, "GET", "/metrics")[2].decode().splitlines() if line.startswith(name + " "))

try:
    one, one_port = start("one")
    two, two_port = start("two")
    base = 100 + os.getpid() % 1000

    # one compile for one missing key, asked for at two services
    before = counter(one_port, "kiln_compiles_total") + counter(two_port, "kiln_compiles_total")
    for i in range(3):
        answers = both(base + i)
        check("both answer", [a[0] for a in answers] == [200, 200], answers)
        check("one of them followed or hit", sum("stored" in a[1] for a in answers) <= 1, [a[1] for a in answers])
    after = counter(one_port, "kiln_compiles_total") + counter(two_port, "kiln_compiles_total")
    check("one compile a key", after - before == 3, after - before)

    # news of its own writing makes no service forget; each builds one kernel by itself, so that it has some
    for i, p in enumerate((one_port, two_port)): ask(p, base + 20 + i, [])
    time.sleep(1.5)
    news = {(p, w): counter(p, f'kiln_news_total{{from="{w}"}}') for p in (one_port, two_port) for w in ("own", "others")}
    for p, other in ((one_port, two_port), (two_port, one_port)):
        check("own news is known as such, others' is heard", news[p, "own"] >= 1 and news[p, "others"] == news[other, "own"], news)

    # a quarantine reaches the memory of the other
    key = json.loads(answers[0][2])["key"]
    path = f"/v1/kernels/{key}"
    check("both have it", call(one_port, "GET", path)[0] == 200 and call(two_port, "GET", path)[0] == 200)
    s = call(one_port, "POST", "/v1/admin/quarantine", json.dumps({"key": key, "reason": "test"}), **{"Content-Type": "application/json"})
    check("quarantined", s[0] in (200, 204), s)
    at = time.time()
    while call(two_port, "GET", path)[0] == 200 and time.time() - at < 5: time.sleep(0.02)
    check("the other service knows within two seconds", time.time() - at < 2, time.time() - at)

    # the leader dies in the middle: the follower finishes
    a, b = [], []
    t1 = threading.Thread(target=ask, args=(one_port, base + 9, a))
    t1.start()
    time.sleep(0.03)
    t2 = threading.Thread(target=ask, args=(two_port, base + 9, b))
    t2.start()
    time.sleep(0.03)
    one.send_signal(signal.SIGKILL)
    one.wait()
    at = time.time()
    t1.join(), t2.join()
    check("the follower answers", b[0][0] == 200, b)
    check("within a lease and a little", time.time() - at < 8, time.time() - at)
finally:
    for p in running:
        if p.poll() is None: p.terminate()
    for p in running: p.wait(30)
    subprocess.run([psql, pg, "-q", "-c", f"SET client_min_messages = error; DROP SCHEMA {schema} CASCADE"])
    shutil.rmtree(work)
print(f"# fleet: {failed} failed")
sys.exit(1 if failed else 0)
