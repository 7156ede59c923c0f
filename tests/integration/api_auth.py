#!/usr/bin/env python3
"""Who may: keys, scopes, expiry, rotation, tenants that see nothing of each other, limits, TLS, the unix socket, the book of changes. Usage: api_auth.py [BUILD]"""
import hashlib, json, os, socket, ssl, statistics, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, UnixConnection, matmul

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
secret = "an-administrators-first-key-0123456789"
folder = tempfile.mkdtemp(prefix="kiln-test.")
open(folder + "/admin", "w").write(secret + "\n")
s = Service(build, "--auth", "--admin-key-file", folder + "/admin")

def new_key(tenant, scopes, **more):
    status, _, data = s.call("POST", "/v1/admin/keys", {"tenant": tenant, "scopes": scopes, **more}, key=secret)
    check("key for " + tenant, status == 201, data)
    return json.loads(data)

def problem(name, answer, status, slug):
    check(name, answer[0] == status and answer[1].get("Content-Type") == "application/problem+json" and json.loads(answer[2])["type"] == "/problems/" + slug, answer)

try:
    # Who is not known gets nothing but the signs of life.
    for path in ("/livez", "/readyz", "/version", "/openapi.json"):
        check("public " + path, s.call("GET", path)[0] == 200)
    answer = s.call("GET", "/v1/kernels")
    problem("no key", answer, 401, "unauthenticated")
    check("challenge", answer[1]["Www-Authenticate"].startswith("Bearer realm="), answer[1])
    problem("wrong key", s.call("GET", "/v1/kernels", key="kiln_000000000000_" + "A" * 43), 401, "unauthenticated")
    check("basic is not bearer", s.call("GET", "/v1/kernels", headers={"Authorization": "Basic YTpi"})[0] == 401)
    a, b = new_key("alpha", ["read", "compile"]), new_key("beta", ["read", "compile", "tune"])
    reader = new_key("alpha", ["read"])
    ka, kb, kr = a["key"], b["key"], reader["key"]
    problem("scope", s.call("POST", "/v1/compile", matmul(32), key=kr), 403, "forbidden")
    problem("no administrator", s.call("GET", "/v1/admin/keys", key=ka), 403, "forbidden")
    listed = s.call("GET", "/v1/admin/keys", key=secret)
    check("secrets are not kept", listed[0] == 200 and b"hash" not in listed[2] and ka.encode() not in listed[2] and len(json.loads(listed[2])["keys"]) == 3, listed)
    stored = b"".join(open(os.path.join(s.data, f), "rb").read() for f in os.listdir(s.data) if f.startswith("kiln.db"))
    check("secrets are not stored", os.environ.get("KILN_API_POSTGRES") or ka.split("_", 2)[2].encode() not in stored and a["id"].encode() in stored)
    for body in ({"tenant": "Alpha!", "scopes": ["read"]}, {"tenant": "x", "scopes": []}, {"tenant": "x", "scopes": ["root"]}, {"tenant": "x", "scopes": ["read"], "expires": 1}, {"scopes": ["read"]}, [1]):
        check("bad key %s" % body, s.call("POST", "/v1/admin/keys", body, key=secret)[0] == 422)

    # One tenant's kernel is nobody else's: by key, blob, list, job or words.
    mine = json.loads(s.call("POST", "/v1/compile", matmul(40), key=ka)[2])
    path, blobs = "/v1/kernels/" + mine["key"], [x["href"] for x in mine["artifacts"]]
    check("own kernel", s.call("GET", path, key=ka)[0] == 200 and all(s.call("GET", h, key=ka)[0] == 200 for h in blobs))
    check("a colleague's", s.call("GET", path, key=kr)[0] == 200)
    never = s.call("GET", "/v1/kernels/kk1-" + "0" * 64, key=kb)
    other = s.call("GET", path, key=kb)
    check("by key", other[0] == 404 and other[2].replace(mine["key"].encode(), b"K") == never[2].replace(b"kk1-" + b"0" * 64, b"K"), (other, never))
    for accept in ("text/x-c", "application/zip", "application/x-sharedlib"):
        check("by key as " + accept, s.call("GET", path, headers={"Accept": accept}, key=kb)[0] == 404)
    for h in blobs:
        check("by blob", s.call("GET", h, key=kb)[0] == 404 and s.call("GET", h, headers={"Range": "bytes=0-3"}, key=kb)[0] == 404)
    check("by head", s.call("HEAD", path, key=kb)[0] == 404)
    check("by list", json.loads(s.call("GET", "/v1/kernels", key=kb)[2])["kernels"] == [])
    check("by etag", s.call("GET", path, headers={"If-None-Match": "*"}, key=kb)[0] == 404)
    run = s.call("POST", "/v1/compile", matmul(41), headers={"Prefer": "respond-async"}, key=ka)
    check("job", run[0] == 202, run)
    check("by job", s.call("GET", run[1]["Location"], key=kb)[0] == 404 and s.call("GET", run[1]["Location"], key=ka)[0] == 200)
    # Who asks for the same program gets it, and may read it from then on; the other's names are not in it.
    named = matmul(42)
    named["inputs"][0]["name"] = "confidential"
    s.call("POST", "/v1/compile", named, key=ka)
    theirs = s.call("POST", "/v1/compile", matmul(42), key=kb)
    check("the same program", theirs[0] == 200 and b"confidential" not in theirs[2] and s.call("GET", "/v1/kernels/" + json.loads(theirs[2])["key"], key=kb)[0] == 200, theirs)
    check("its blobs", all(s.call("GET", x["href"], key=kb)[0] == 200 for x in json.loads(theirs[2])["artifacts"]))
    check("prepared answers are not shared", s.call("GET", path, key=ka)[0] == 200 and s.call("GET", path, key=kb)[0] == 404)
    # Who may see a kernel sees its jobs, but only who asked for a job changes it.
    tuner = new_key("alpha", ["read", "compile", "tune"])["key"]
    theirs = json.loads(theirs[2])["key"]
    made = s.call("POST", "/v1/jobs", {"kind": "retune", "key": theirs}, key=tuner)
    job = "/v1/jobs/" + json.loads(made[2])["id"]
    held = s.call("GET", job, key=kb)
    check("a shared kernel's job", made[0] == 202 and held[0] == 200, (made, held))
    problem("another's job ends", s.call("DELETE", job, key=kb), 403, "forbidden")
    problem("another's job changes", s.call("PATCH", job, {"paused": True}, headers={"If-Match": held[1]["Etag"]}, key=kb), 403, "forbidden")
    until = time.monotonic() + 20 # numbers of jobs are those of the last look at the queue
    while b'tenant="alpha"' not in s.call("GET", "/metrics", key=secret)[2] and time.monotonic() < until: time.sleep(0.1)
    seen = [s.call("GET", "/metrics", key=k)[2] for k in (secret, tuner, kb)]
    check("other tenants' jobs are not in the metrics", [b'tenant="alpha"' in t for t in seen] == [True, True, False] and b'kiln_jobs{state="queued"' in seen[2])
    check("one's own job", s.call("DELETE", job, key=tuner)[0] == 202)
    made = s.call("POST", "/v1/jobs", {"kind": "retune", "key": theirs}, key=tuner)
    problem("results are for workers to hand in", s.call("POST", "/v1/measurements", {"results": []}, key=tuner), 403, "forbidden")
    check("a worker's results", s.call("POST", "/v1/measurements", {"results": []}, key=new_key("alpha", ["work"])["key"])[0] == 200)
    check("an administrator's word", s.call("DELETE", "/v1/jobs/" + json.loads(made[2])["id"], key=secret)[0] == 202)
    # A tenant that shows what it makes.
    check("tenant", s.call("PUT", "/v1/admin/tenants/open", {"visibility": "public"}, key=secret)[0] == 204)
    shown = json.loads(s.call("POST", "/v1/compile", matmul(43), key=new_key("open", ["compile", "read"])["key"])[2])
    check("public", s.call("GET", "/v1/kernels/" + shown["key"], key=kb)[0] == 200 and s.call("GET", shown["artifacts"][0]["href"], key=kb)[0] == 200)
    check("bad tenant", s.call("PUT", "/v1/admin/tenants/open", {"visibility": "some"}, key=secret)[0] == 422)

    # Limits.
    check("limited tenant", s.call("PUT", "/v1/admin/tenants/slow", {"rate": 5, "compiles_per_day": 1}, key=secret)[0] == 204)
    slow = new_key("slow", ["compile", "read"])["key"]
    generous = new_key("generous", ["compile", "read"])["key"]
    # A large artifact that was prepared is one file for all, the words about the limit are everyone's own.
    s.call("PUT", "/v1/admin/tenants/large", {"visibility": "private", "rate": 1000}, key=secret)
    large = new_key("large", ["compile", "read"])["key"]
    product = {"op": "MatMul", "inputs": [{"name": n, "dtype": "f16", "shape": [256, 256]} for n in "ab"], "target": "nvidia-h200"}
    made = json.loads(s.call("POST", "/v1/compile", product, key=large)[2])["artifacts"]
    href = max(made, key=lambda x: x["bytes"])["href"]
    got = [s.call("GET", href, key=large) for _ in range(3)]
    check("large and limited", all(g[0] == 200 and hashlib.sha256(g[2]).hexdigest() == href.split("/")[-1] for g in got) and len(got[0][2]) > 16384, got[0][1])
    check("each with its own limit", len({g[1]["Ratelimit"] for g in got}) == 3, [g[1] for g in got])
    s.call("PUT", "/v1/admin/tenants/generous", {"visibility": "private", "rate": 10}, key=secret)
    left = [s.call("POST", "/v1/compile", matmul(43), key=generous)[1].get("Ratelimit", "") for _ in range(4)]
    check("what is left is told with prepared answers too", all(left) and len(set(left)) > 1, left)
    first = s.call("POST", "/v1/compile", matmul(44), key=slow)
    check("headers of the limit", first[0] == 200 and first[1]["Ratelimit-Policy"] == '"minute";q=5;w=60' and first[1]["Ratelimit"].startswith('"minute";r=4;'), first)
    over = s.call("POST", "/v1/compile", matmul(45), key=slow)
    problem("compiles of a day", over, 429, "limit-exceeded")
    check("what there is can be had", s.call("POST", "/v1/compile", matmul(44), key=slow)[0] == 200)
    answers = [s.call("GET", "/v1/kernels", key=slow) for _ in range(4)]
    problem("requests of a minute", answers[-1], 429, "quota-exceeded")
    check("retry", 1 <= int(answers[-1][1]["Retry-After"]) <= 13, answers[-1])
    check("others go on", s.call("GET", "/v1/kernels", key=ka)[0] == 200)

    # Expiry and rotation.
    lasting, short = (new_key("alpha", ["read"], expires_seconds=n)["key"] for n in (600, 1))
    check("before it expires", s.call("GET", "/v1/kernels", key=lasting)[0] == 200)
    fresh = s.call("POST", f"/v1/admin/keys/{b['id']}/rotate", {"grace_seconds": 600}, key=secret)
    kb2 = json.loads(fresh[2])["key"]
    check("rotation", fresh[0] == 201 and kb2 != kb and s.call("GET", "/v1/kernels", key=kb)[0] == 200 and s.call("GET", "/v1/kernels", key=kb2)[0] == 200, fresh)
    fresh = s.call("POST", f"/v1/admin/keys/{b['id']}/rotate", {"grace_seconds": 1}, key=secret)
    kb2 = json.loads(fresh[2])["key"]
    time.sleep(1.2)
    check("expired", s.call("GET", "/v1/kernels", key=short)[0] == 401 and s.call("GET", "/v1/kernels", key=kb)[0] == 401 and s.call("GET", "/v1/kernels", key=kb2)[0] == 200)
    check("ended", s.call("DELETE", "/v1/admin/keys/" + reader["id"], key=secret)[0] == 204 and s.call("GET", "/v1/kernels", key=kr)[0] == 401)
    check("unknown key", s.call("DELETE", "/v1/admin/keys/nothing", key=secret)[0] == 404)

    # Quarantine is for administrators and everybody.
    check("quarantine", s.call("POST", "/v1/admin/quarantine", {"key": mine["key"], "reason": "a test"}, key=secret)[0] == 204)
    check("gone", s.call("GET", path, key=ka)[0] == 410)
    book = json.loads(s.call("GET", "/v1/admin/audit", key=secret)[2])["audit"]
    check("audit", [x["action"] for x in book[:3]] == ["quarantine", "key-expire", "key-rotate"] and not any("kiln_" in json.dumps(x) for x in book), book[:3])

    swept = s.call("POST", "/v1/admin/gc", {"keep_days": 0}, key=secret)
    check("gc", swept[0] == 200 and json.loads(swept[2])["audit"] >= 10 and [x["action"] for x in json.loads(s.call("GET", "/v1/admin/audit", key=secret)[2])["audit"]] == ["gc"], swept)

    # The time of a refusal does not tell how much of a key was right: interleaved, medians.
    id_known, other_id = b["id"], "0" * 12
    kinds = {"near": f"kiln_{a['id']}_" + ka.split("_", 2)[2][:-1] + ("A" if ka[-1] != "A" else "B"), "far": f"kiln_{a['id']}_" + "A" * 43, "unknown": f"kiln_{other_id}_" + "A" * 43}
    times = {k: [] for k in kinds}
    c = s.connection()
    for _ in range(300):
        for k, v in kinds.items():
            t = time.perf_counter()
            c.request("GET", "/v1/operators", headers={"Authorization": "Bearer " + v})
            r = c.getresponse(); r.read()
            times[k].append(time.perf_counter() - t)
    med = {k: statistics.median(v) for k, v in times.items()}
    check("constant time", max(med.values()) < 1.25 * min(med.values()), med)

    # The unix socket of the service's own user is an administrator's.
    u = UnixConnection(s.data + "/kiln.sock")
    u.request("GET", "/v1/admin/keys")
    check("unix socket", u.getresponse().status == 200 and oct(os.stat(s.data + "/kiln.sock").st_mode)[-3:] == "600")

    # The command line finds the socket by itself, and shows a key where there is none.
    def cli(**env):
        return subprocess.run([build + "/kiln", "targets"], capture_output=True, text=True, env={**{k: v for k, v in os.environ.items() if not k.startswith("KILN_")}, **env})
    os.makedirs(folder + "/kiln", exist_ok=True)
    os.symlink(s.data + "/kiln.sock", folder + "/kiln/kiln.sock")
    check("command line by socket", cli(XDG_DATA_HOME=folder).returncode == 0, cli(XDG_DATA_HOME=folder))
    at = f"http://127.0.0.1:{s.port}"
    check("command line by key", cli(KILN_URL=at).returncode != 0 and cli(KILN_URL=at, KILN_KEY=ka).returncode == 0, cli(KILN_URL=at, KILN_KEY=ka))

    # Another service on the same store knows the keys; TLS.
    s.stop()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder + "/k.pem", "-out", folder + "/c.pem"], check=True, capture_output=True)
    t = Service(build, "--auth", "--tls-cert", folder + "/c.pem", "--tls-key", folder + "/k.pem", data=s.data, store=s.store, tls=ssl.create_default_context(cafile=folder + "/c.pem"))
    s = t
    check("TLS, and a key from before", t.call("GET", "/v1/kernels", key=ka)[0] == 200 and t.call("GET", "/v1/kernels", key="kiln_x")[0] == 401)
    def long_path(n):
        with ssl.create_default_context(cafile=folder + "/c.pem").wrap_socket(socket.create_connection(("127.0.0.1", t.port), 5), server_hostname="127.0.0.1") as c:
            c.sendall(b"GET /" + b"a" * n + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            return c.recv(65536)[:12]
    answers = {n: long_path(n) for n in range(7700, 8300, 47)}
    check("over TLS too, heads that fill a connection are answered", set(answers.values()) <= {b"HTTP/1.1 414", b"HTTP/1.1 431"}, answers)
    check("grants stay", len(t.json("GET", "/v1/kernels", key=ka)["kernels"]) == 3, t.json("GET", "/v1/kernels", key=ka))

    # A public address without keys is refused, unless told so.
    def config(*flags):
        return subprocess.run([build + "/kilnd", "--check-config", *flags], capture_output=True, text=True)
    check("public address", config("--listen", "0.0.0.0:0").returncode == 78 and "--auth" in config("--listen", "0.0.0.0:0").stderr)
    check("public with keys", config("--listen", "0.0.0.0:0", "--auth").returncode == 0 and config("--listen", "0.0.0.0:0", "--allow-public").returncode == 0)
finally:
    s.stop()
sys.exit(check.end())
