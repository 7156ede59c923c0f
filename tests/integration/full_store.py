"""A full disk under the store: compiles answer 507, nothing is torn, what is there is served on, also after kill -9 and a start on the full disk; when there
is room again kernels are stored again. The same for a PostgreSQL whose tables have no room: nobody sees it, and the kernels go there later.
Needs a small file system of its own: by mount, else in a user namespace. usage: full_store.py BUILD; PostgreSQL from KILN_TEST_PG."""
import glob, hashlib, json, os, shutil, signal, sqlite3, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, matmul

build = os.path.abspath(sys.argv[1])
if os.geteuid() and not os.environ.get("KILN_INSIDE"):
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        print("no file system can be mounted here")
        sys.exit(77)
    os.execvpe("unshare", ["unshare", "-Urm", sys.executable, *sys.argv], {**os.environ, "KILN_INSIDE": "1"})
check = Checks()
logs = tempfile.mkdtemp(prefix="kiln-test.")
mounted = []

def small(mib):
    d = tempfile.mkdtemp(prefix="kiln-test.")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "none", d], capture_output=True).returncode:
        os.rmdir(d)
        print("no file system can be mounted here")
        sys.exit(77)
    mounted.append(d)
    return d

def fill(d, leave):
    """Takes all of the room but so many bytes."""
    with open(d + "/ballast", "ab") as f:
        while (room := os.statvfs(d).f_bavail * os.statvfs(d).f_frsize - leave) > 0:
            f.write(bytes(min(room, 1 << 16)))
            f.flush()

def ask(s, n): return s.call("POST", "/v1/compile", matmul(n, target="host"))

def whole(s, kernels, what):
    for k, made in kernels.items():
        r = s.call("GET", "/v1/kernels/" + k)
        check(f"{what}: served", r[0] == 200 and json.loads(r[2])["build"] == made["build"], r)
        for x in made["artifacts"]:
            got = s.call("GET", x["href"])
            check(f"{what}: its bytes", got[0] == 200 and hashlib.sha256(got[2]).hexdigest() == x["sha256"], (x, got[0]))

def documents(s, what, targets=True):
    """What is no kernel: keys, tenants, hardware descriptions, markers. Some may still fit; then 507, as for kernels. Descriptions go to the embedded store too,
    which has room in the second case."""
    spec = json.load(open("hwspecs/x86-64-avx2.json"))
    kinds = {"key": lambda n: s.call("POST", "/v1/admin/keys", {"tenant": "t", "scopes": ["read"], "label": "x" * 190}),
             "tenant": lambda n: s.call("PUT", f"/v1/admin/tenants/t{n}", {"jobs": 1}),
             "marker": lambda n: s.call("POST", "/v1/warmups", {"name": f"w{n}", "items": [matmul(30, target="host")]})}
    if targets: kinds["target"] = lambda n: s.call("PUT", f"/v1/targets/t{n}", dict(spec, id=f"t{n}"))
    for kind, put in kinds.items():
        seen = []
        for n in range(300):
            seen.append(put(n))
            for _ in range(10): # a store that cannot be asked at the moment says when it can
                if seen[-1][0] != 503: break
                time.sleep(float(seen[-1][1].get("Retry-After", 1)))
                seen[-1] = put(n)
            if seen[-1][0] >= 400: break
        check(f"{what}: a {kind} is answered 507", seen[-1][0] == 507 and b"/problems/store-full" in seen[-1][2], (kind, len(seen), seen[-1][0], seen[-1][2][:300]))

s, databases, ask_there = None, [], None
pg = os.environ.get("KILN_TEST_PG")
try:
    d = small(8)
    s = Service(build, "--memory-mib", "1", data=d, environ={"TMPDIR": "/tmp"}, logs=logs)
    kernels = {}
    for n in range(3):
        made = json.loads(ask(s, 30 + n)[2])
        kernels[made["key"]] = made
    fill(d, 65536)
    codes = [ask(s, 60)]
    for n in range(61, 90):
        codes.append(ask(s, n))
        if codes[-1][0] == 200: kernels[json.loads(codes[-1][2])["key"]] = json.loads(codes[-1][2])
    check("507 when full", {c[0] for c in codes} <= {200, 507} and codes[-1][0] == 507 and b"/problems/store-full" in codes[-1][2], [c[0] for c in codes])
    time.sleep(1.1)
    check("and again when it is tried again", ask(s, 91)[0] == 507)
    documents(s, "SQLite is full")
    check("nothing of those is there", s.call("GET", "/v1/kernels/" + s.json("POST", "/v1/key", matmul(91, target="host"))["key"])[0] == 404)
    whole(s, kernels, "full")
    s.process.send_signal(signal.SIGKILL)
    s.process.wait()
    s = Service(build, "--memory-mib", "1", data=d, environ={"TMPDIR": "/tmp"}, logs=logs)
    whole(s, kernels, "after kill -9, still full")
    os.unlink(d + "/ballast")
    time.sleep(1.1)
    r = ask(s, 91)
    check("stored when there is room", r[0] == 200 and "stored" in r[1]["Cache-Status"], r)
    kernels[json.loads(r[2])["key"]] = json.loads(r[2])
    whole(s, kernels, "room again")
    s.stop()
    db = sqlite3.connect(d + "/kiln.db")
    check("the database is sound", db.execute("PRAGMA integrity_check").fetchone()[0] == "ok" and not [x for x in os.listdir(d) if "corrupt" in x], os.listdir(d))
    db.close()
    # A bundle that does not fit, and the rest of it later: it is signed by the service of this store.
    s = Service(build, "--memory-mib", "1", data=d, environ={"TMPDIR": "/tmp"}, logs=logs)
    while ask(s, len(kernels) + 400)[0] != 507 and len(kernels) < 60:
        made = json.loads(ask(s, len(kernels) + 400)[2])
        kernels[made["key"]] = made
    bundle, media = s.call("POST", "/v1/exports", {}), {"Content-Type": "application/vnd.kiln.export"}
    with open("/tmp/kiln-trusted.%d" % os.getpid(), "w") as f: f.write(s.json("GET", "/version")["signer"])
    s.stop()
    e = small(3)
    s = Service(build, "--trusted-keys", f.name, data=e, environ={"TMPDIR": "/tmp"}, logs=logs)
    fill(e, 1 << 18)
    r = s.call("POST", "/v1/imports", bundle[2], headers=media)
    check("an import that does not fit", r[0] == 507, r)
    os.unlink(e + "/ballast")
    subprocess.run(["mount", "-o", "remount,size=64m", e], check=True)
    r = s.json("POST", "/v1/imports", bundle[2], headers=media)
    check("fits later", r.get("imported", 0) + r.get("known", 0) >= len(kernels) and r["refused"] == 0, (r, len(kernels)))
    whole(s, kernels, "imported")
    s.stop()
    os.unlink(f.name)
    # PostgreSQL: its tables lie in a small place of their own.
    if pg and not os.environ.get("KILN_INSIDE"):
        t, name = small(24), f"full{os.getpid()}"
        os.makedirs(t + "/here")
        owner = subprocess.run(["psql", "-qAtX", pg, "-c", "SELECT pg_backend_pid()"], check=True, capture_output=True, text=True).stdout.strip()
        uid = os.stat(f"/proc/{owner}").st_uid if os.path.exists(f"/proc/{owner}") else os.stat(subprocess.run(["psql", "-qAtX", pg, "-c", "SHOW data_directory"],
              check=True, capture_output=True, text=True).stdout.strip()).st_uid
        os.chown(t + "/here", uid, -1)
        for q in (f"CREATE TABLESPACE {name} LOCATION '{t}/here'", f"CREATE DATABASE {name} TABLESPACE {name}"): subprocess.run(["psql", "-qX", pg, "-c", q], check=True)
        databases.append(name)
        url = pg.rsplit("/", 1)[0] + "/" + name
        s = Service(build, environ={"TMPDIR": "/tmp"}, logs=logs, store=["--data", "", "--postgres", url])
        # One connection for all counts: where nothing can be written a new one may be refused, as it writes a file of what the catalogue holds.
        ask_there = subprocess.Popen(["psql", "-qAtXv", "ON_ERROR_STOP=1", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        def count():
            ask_there.stdin.write("SELECT count(DISTINCT key) FROM kiln_record;\n")
            ask_there.stdin.flush()
            return int(ask_there.stdout.readline())
        kernels = {json.loads(r[2])["key"]: json.loads(r[2]) for r in (ask(s, 30),)}
        check("PostgreSQL has room", count() >= 0)
        fill(t, 0)
        def unseen(what, sizes):
            for n in sizes:
                r = ask(s, n)
                check(f"{what}, and nobody sees it", r[0] == 200, r)
                kernels[json.loads(r[2])["key"]] = json.loads(r[2])
        unseen("PostgreSQL is full", range(100, 112))
        before = count()
        whole(s, kernels, "PostgreSQL full")
        check("it really was", before < len(kernels), (before, len(kernels)))
        # As when a vacuum has touched the catalogue: who connects now has to write the file of it, and is refused for want of room.
        for catalogue in glob.glob(t + "/here/*/*/pg_internal.init"): os.unlink(catalogue)
        unseen("PostgreSQL refuses new connections", range(112, 116))
        refused = subprocess.run(["psql", "-qAtXc", "SELECT 1", url], capture_output=True, text=True)
        check("it does refuse them", refused.returncode != 0 or "could not write" in refused.stderr, refused)
        documents(s, "PostgreSQL is full", False)
        os.unlink(t + "/ballast")
        at = time.time()
        while count() < len(kernels) and time.time() - at < 45: time.sleep(0.5)
        check("they go there when there is room", count() == len(kernels), (count(), len(kernels)))
        whole(s, kernels, "PostgreSQL has room")
finally:
    if s: s.stop()
    if ask_there: ask_there.communicate()
    for name in databases:
        for q in (f"DROP DATABASE {name} WITH (FORCE)", f"DROP TABLESPACE {name}"): subprocess.run(["psql", "-qX", pg, "-c", q])
    for d in mounted:
        subprocess.run(["umount", d])
        os.rmdir(d)
    shutil.rmtree(logs)
sys.exit(check.end())
