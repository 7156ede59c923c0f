"""docker-compose.yml without Docker: each of its services as a process, with exactly its command, environment and secret, in its order; only what containers would
give it is put in: names become addresses, published ports private ones, volumes folders. Then the fleet is used. usage: compose.py BUILD"""
import json, os, pwd, re, subprocess, sys, tempfile, time, urllib.error, urllib.request
sys.path.append("tests")
from free_port import free_port
sys.path.insert(0, os.path.dirname(__file__))
import yaml
from service import Checks, matmul

build = os.path.abspath(sys.argv[1])
check = Checks()
bins = subprocess.run("ls -d /usr/lib/postgresql/*/bin | tail -n 1", shell=True, capture_output=True, text=True).stdout.strip()
file = yaml.safe_load(open("docker-compose.yml"))
services = file["services"]
work = tempfile.mkdtemp(prefix="kiln-test.")
os.chmod(work, 0o755)
running, ports = {}, {n: free_port() for n in ("kilnd", "redis", "postgres")}
admin = "an administrator's key of a test"
with open(work + "/admin.key", "w") as f: f.write(admin + "\n")
entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])", open("Dockerfile").read(), re.M).group(1))

def here(text):
    """A value of the file as it is outside of containers."""
    for a, b in (("@postgres/", f"@127.0.0.1:{ports['postgres']}/"), ("redis://redis:6379", f"redis://127.0.0.1:{ports['redis']}"), ("0.0.0.0:8787", f"127.0.0.1:{ports['kilnd']}"),
                 ("/run/secrets/admin_key", work + "/admin.key"), ("/usr/share/kiln/hwspecs", os.path.abspath("hwspecs"))):
        text = text.replace(a, b)
    return text

def start(name, command, home, **more):
    os.makedirs(home, exist_ok=True)
    command = [here(c).replace("/var/lib/kiln", home) for c in command]
    if command[0] in ("kilnd", "kiln-worker"): command[0] = f"{build}/{command[0]}"
    env = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")} | {k: here(str(v)) for k, v in (services[name.split(".")[0]].get("environment") or {}).items()} | {"HOME": home, "TMPDIR": home} # a container has its own /tmp
    running[name] = subprocess.Popen(command, env=env, cwd=home, stdout=open(f"{work}/{name}.log", "w"), stderr=subprocess.STDOUT, **more)

def call(method, path, body=None, key=admin):
    q = urllib.request.Request(f"http://127.0.0.1:{ports['kilnd']}{path}", json.dumps(body).encode() if body is not None else None, method=method,
                               headers={"Content-Type": "application/json"} | ({"Authorization": "Bearer " + key} if key else {}))
    try:
        with urllib.request.urlopen(q, timeout=60) as r: return r.status, dict(r.headers), r.read()
    except urllib.error.HTTPError as e: return e.code, dict(e.headers), e.read()

def until(seconds, f):
    end = time.monotonic() + seconds
    while not f() and time.monotonic() < end: time.sleep(0.1)
    return f()

def ready():
    try: return call("GET", "/readyz")[0] == 200
    except OSError: return False

try:
    # What others made: a PostgreSQL with the user, password and database that its image makes of the environment; Redis with its command.
    e, who = services["postgres"]["environment"], {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    home = work + "/postgres"
    os.makedirs(home)
    if who: os.chown(home, pwd.getpwnam("nobody").pw_uid, -1)
    with open(work + "/pw", "w") as f: f.write(e["POSTGRES_PASSWORD"])
    subprocess.run([bins + "/initdb", "-D", home + "/data", "-U", e["POSTGRES_USER"], "-A", "scram-sha-256", "--pwfile", work + "/pw", "--no-sync"], check=True, capture_output=True, **who)
    running["postgres"] = subprocess.Popen([bins + "/postgres", "-D", home + "/data", "-p", str(ports["postgres"]), "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={home}",
                                            "-c", "fsync=off"], stdout=open(work + "/postgres.log", "w"), stderr=subprocess.STDOUT, **who)
    url = here(services["kilnd"]["environment"]["KILN_POSTGRES"])
    maintenance = url.rsplit("/", 1)[0] + "/postgres"
    healthy = [bins + "/" + services["postgres"]["healthcheck"]["test"][1], *services["postgres"]["healthcheck"]["test"][2:], "-h", "127.0.0.1", "-p", str(ports["postgres"])]
    check("PostgreSQL is healthy by its own check", until(30, lambda: subprocess.run(healthy, capture_output=True).returncode == 0))
    subprocess.run(["psql", "-q", maintenance, "-c", "CREATE DATABASE " + e["POSTGRES_DB"]], check=True)
    start("redis", services["redis"]["command"] + ["--bind", "127.0.0.1", "--port", str(ports["redis"])], work + "/redis")

    start("kilnd", entry + services["kilnd"]["command"], work + "/kiln-data")
    check("the service is ready", until(30, ready), open(work + "/kilnd.log").read()[-1000:])
    n = services["worker"]["deploy"]["replicas"]
    for i in range(n): start(f"worker.{i}", services["worker"]["entrypoint"] + services["worker"]["command"], f"{work}/worker{i}")
    check("it asks for keys", call("GET", "/v1/kernels", key=None)[0] == 401)
    asked = lambda text: subprocess.run(["psql", "-qAtX", url, "-c", text], capture_output=True, text=True).stdout.strip()
    check("its workers are there", until(20, lambda: asked("SELECT count(DISTINCT name) FROM kiln_worker") == str(n)), asked("SELECT name, state FROM kiln_worker"))

    # A newcomer's first minute with it.
    call("PUT", "/v1/admin/tenants/vision", {"visibility": "private"})
    key = json.loads(call("POST", "/v1/admin/keys", {"tenant": "vision", "scopes": ["read", "compile", "tune"]})[2])["key"]
    r = call("POST", "/v1/compile", matmul(40, target="host"), key=key)
    check("a kernel", r[0] == 200 and json.loads(r[2])["quality"]["verification"] in ("run", "measured"), r)
    k = json.loads(r[2])["key"]
    r = call("POST", "/v1/compile", matmul(40, target="host"), key=key)
    check("the second time from memory", "hit" in r[1]["Cache-Status"], r[1])
    check("in PostgreSQL", asked(f"SELECT count(*) FROM kiln_record WHERE key = '{k}'") == "1", k)
    job = json.loads(call("POST", "/v1/jobs", {"kind": "verify", "key": k}, key=key)[2])
    done = lambda: json.loads(call("GET", "/v1/jobs/" + job["id"], key=key)[2])
    check("a worker verifies it", until(40, lambda: done()["state"] == "succeeded"), done())
    running["kilnd"].kill()
    running.pop("kilnd").wait()
    start("kilnd", entry + services["kilnd"]["command"], work + "/kiln-data")
    check("after a kill it is there again", until(30, ready) and call("GET", "/v1/kernels/" + k, key=key)[0] == 200)
finally:
    codes = {}
    for name in sorted(running, key=lambda n: ("worker" in n, n == "kilnd"), reverse=True):
        running[name].terminate()
        try: codes[name] = running[name].wait(60)
        except subprocess.TimeoutExpired: running[name].kill()
    check("service and workers end on SIGTERM", all(codes.get(n) == 0 for n in running if n == "kilnd" or "worker" in n), codes)
    subprocess.run(["rm", "-rf", work])
sys.exit(check.end())
