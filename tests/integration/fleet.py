"""Two services on one PostgreSQL and Redis: one compile for one missing key, a follower that takes over when the leader dies, a quarantine and an improved
version that reach the memory of the other service at once. usage: fleet.py BUILD; servers from KILN_TEST_PG and KILN_TEST_REDIS."""
import glob, json, os, shutil, signal, subprocess, sys, tempfile, threading, time
from service import Checks, Service, matmul

build = os.path.abspath(sys.argv[1])
pg, redis = os.environ.get("KILN_TEST_PG"), os.environ.get("KILN_TEST_REDIS")
if not pg or not redis:
    print("no servers are named")
    sys.exit(77)
work = tempfile.mkdtemp()
schema = f"fleet_{os.getpid()}"
psql = sorted(glob.glob("/usr/lib/postgresql/*/bin/psql"))[-1]
subprocess.run([psql, pg, "-q", "-c", f"CREATE SCHEMA {schema}"], check=True)
url = f"{pg}?options=-csearch_path%3D{schema}"
check = Checks()
running = []

def start(name):
    data = f"{work}/{name}"
    running.append(Service(build, "--redis", redis, "--lease-ms", "2000", data=data, store=["--data", data, "--postgres", url], logs=work))
    return running[-1]

def ask(service, n, out):
    try: out.append(service.call("POST", "/v1/compile", matmul(n, target="host")))
    except OSError as e: out.append((0, {}, str(e).encode()))

def both(n):
    a, b = [], []
    threads = [threading.Thread(target=ask, args=(s, n, o)) for s, o in ((one, a), (two, b))]
    for t in threads: t.start()
    for t in threads: t.join()
    return a[0], b[0]

def counter(service, name):
    return sum(int(line.split()[1]) for line in service.call("GET", "/metrics")[2].decode().splitlines() if line.startswith(name + " "))

try:
    one, two = start("one"), start("two")
    base = 100 + os.getpid() % 1000

    # one compile for one missing key, asked for at two services
    before = counter(one, "kiln_compiles_total") + counter(two, "kiln_compiles_total")
    for i in range(3):
        answers = both(base + i)
        check("both answer", [a[0] for a in answers] == [200, 200], answers)
        check("one of them followed or hit", sum("stored" in a[1].get("Cache-Status", "") for a in answers) <= 1, [a[1] for a in answers])
    after = counter(one, "kiln_compiles_total") + counter(two, "kiln_compiles_total")
    check("one compile a key", after - before == 3, after - before)

    # news of its own writing makes no service forget; each builds one kernel by itself, so that it has some
    for i, p in enumerate((one, two)): ask(p, base + 20 + i, [])
    time.sleep(1.5)
    news = {(p, w): counter(p, f'kiln_news_total{{from="{w}"}}') for p in (one, two) for w in ("own", "others")}
    for p, other in ((one, two), (two, one)):
        check("own news is known as such, others' is heard", news[p, "own"] >= 1 and news[p, "others"] == news[other, "own"], news)

    # a quarantine reaches the memory of the other
    key = json.loads(answers[0][2])["key"]
    path = f"/v1/kernels/{key}"
    check("both have it", one.call("GET", path)[0] == 200 and two.call("GET", path)[0] == 200)
    s = one.call("POST", "/v1/admin/quarantine", {"key": key, "reason": "test"})
    check("quarantined", s[0] in (200, 204), s)
    looks = 0 # two seconds of looking: while the machine stands still nobody looks
    while two.call("GET", path)[0] == 200 and looks < 100: time.sleep(0.02); looks += 1
    check("the other service knows soon", looks < 100, looks)

    # the leader dies in the middle: the follower finishes
    a, b = [], []
    t1 = threading.Thread(target=ask, args=(one, base + 9, a))
    t1.start()
    time.sleep(0.03)
    t2 = threading.Thread(target=ask, args=(two, base + 9, b))
    t2.start()
    time.sleep(0.03)
    one.process.send_signal(signal.SIGKILL)
    one.process.wait()
    at = time.time()
    t1.join(), t2.join()
    check("the follower answers", b[0][0] == 200, b)
    check("within a lease and a little", time.time() - at < 8, time.time() - at)
finally:
    for s in running: s.stop()
    subprocess.run([psql, pg, "-q", "-c", f"SET client_min_messages = error; DROP SCHEMA {schema} CASCADE"])
    shutil.rmtree(work)
sys.exit(check.end())
