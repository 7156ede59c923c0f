"""Whose kernels a fleet serves: workers and services that sign what they build, on one PostgreSQL and Redis. A stranger, a forger, a thief of signed
records and somebody who takes signatures off write to the database as any worker can; none of it is served, all of it is in the book, good versions are
served on. A second worker rebuilds what is asked about. Bundles keep who built what.
usage: trust.py BUILD; servers from KILN_TEST_PG and KILN_TEST_REDIS."""
import base64, hashlib, json, os, struct, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, matmul

build = os.path.abspath(sys.argv[1])
pg, redis = os.environ.get("KILN_TEST_PG"), os.environ.get("KILN_TEST_REDIS")
if not pg or not redis:
    print("no servers are named")
    sys.exit(77)
check = Checks()
work = tempfile.mkdtemp(prefix="kiln-test.")
os.chmod(work, 0o755)
base = pg.rsplit("/", 1)[0] + "/"
name = "trust%d" % os.getpid()
subprocess.run(["psql", "-q", pg, "-c", "CREATE DATABASE " + name], check=True)
url = base + name
store = ["--postgres", url, "--redis", redis]
admin = "an administrator's key of a test"
with open(work + "/admin", "w") as f: f.write(admin + "\n")
running = []

def sql(text): return subprocess.run(["psql", "-qAtX", url, "-c", text], check=True, capture_output=True, text=True).stdout.strip()

# ---- records as a hostile client of the database writes them (cache/record.c) ----
FIELDS = ["key", "workload", "build", "origin", "target", "name", "canon", "trace", "manifest", "predicted", "measured", "created", "artifacts"]
def decode(body):
    at, out = 4, []
    while at < len(body) - 32:
        n = struct.unpack_from("<I", body, at)[0]
        out.append(body[at + 4:at + 4 + n])
        at += 4 + n
    return out

def encode(fields, signed):
    plain = b"".join(struct.pack("<I", len(f)) + f for f in (fields if signed else fields[:-3]))
    text = (b"KR2\n" if signed else b"KR1\n") + plain
    return text + hashlib.sha256(text).digest()

def body_of(key, version): return bytes.fromhex(sql(f"SELECT encode(body, 'hex') FROM kiln_record WHERE key = '{key}' AND version = {version}"))

def plant(key, body):
    """A row as the next version; a service that has none of it in memory must look at it."""
    sql(f"INSERT INTO kiln_record(key, version, workload, build, target, origin, created_ms, body) SELECT key, version + 1, workload, build, target, origin,"
        f" created_ms, decode('{body.hex()}', 'hex') FROM kiln_record WHERE key = '{key}' ORDER BY version DESC LIMIT 1")
    subprocess.run(["redis-cli", "-u", redis, "DEL", "kiln:r:" + key], check=True, capture_output=True)

def signature(seed, text):
    with open(work + "/k.der", "wb") as f: f.write(bytes.fromhex("302e020100300506032b657004220420") + seed) # PKCS #8 of Ed25519, RFC 8410
    with open(work + "/pae", "wb") as f: f.write(text)
    subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey", work + "/k.der", "-in", work + "/pae", "-out", work + "/sig"], check=True)
    return open(work + "/sig", "rb").read().hex()

def sealed(public, seed, context, text, at):
    """A verdict, or an answer of "impossible", as its author seals it (workers/seal_text.c)."""
    sig = signature(seed, b"%s %d\n%s" % (context.encode(), at, text.encode()))
    return text[:-1] + (',' if text != "{}" else '') + f'"by":"{public}","at_ms":{at},"seal":"{sig}"}}'

def say(key, version, state, text): sql(f"INSERT INTO kiln_verdict(key, version, state, json, created_ms) VALUES('{key}', {version}, {state}, convert_to('{text}', 'UTF8'), 0)")

def seal(fields, public, seed, said):
    """Signs as a worker does, with openssl; said: what to say otherwise."""
    s = json.loads(fields[-3])
    s["predicate"].update(record_sha256=hashlib.sha256(encode(fields, False)[:-32]).hexdigest(), **said)
    s["predicate"]["builder"]["keyid"] = public
    s["subject"] = [{"name": fields[13 + 3 * i].decode(), "digest": {"sha256": fields[14 + 3 * i].decode()}} for i in range((len(fields) - 16) // 3)]
    text = json.dumps(s).encode()
    sig = signature(seed, b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(text), text))
    return encode(fields[:-3] + [text, public.encode(), sig.encode()], True)

# ---- processes ----
def card(worker): return json.loads(subprocess.run([build + "/kiln-worker", "card", "--data", f"{work}/{worker}", "--name", worker], check=True, capture_output=True).stdout)

def start_worker(worker, kinds="compile,verify", sealed="1"):
    p = subprocess.Popen([build + "/kiln-worker", "run", "--data", f"{work}/{worker}", *store, "--name", worker, "--kinds", kinds, "--slots", "1", "--sealed", sealed,
                          "--builder-keys", work + "/roots", "--lease-ms", "2000"], stderr=open(f"{work}/{worker}.log", "w"))
    running.append(p)
    return p

def start(*more):
    s = Service(build, "--sealed", "--builder-keys", work + "/roots", "--lease-ms", "2000", "--auth", "--admin-key-file", work + "/admin", *more,
                store=["--data", "", *store])
    return s

def public_of(s): return s.json("GET", "/version")["signer"]
def provenance(s, key, **more): return s.json("GET", f"/v1/kernels/{key}/provenance", key=admin, **more)
def book(s, key, version): return {x["detail"].split(":")[0] for x in s.json("GET", "/v1/admin/audit", key=admin)["audit"] if x["action"] == "record-refused" and x["subject"] == f"{key}:{version}"}
def end_of(s, job):
    for _ in range(8):
        x = s.json("GET", "/v1/jobs/" + job, headers={"Prefer": "wait=10"}, key=admin)
        if x["state"] not in ("queued", "leased", "running", "retry_wait"): return x
    return x

for w in ("w1", "w2", "rogue", "guest"): os.mkdir(f"{work}/{w}")
open(work + "/roots", "w").close()
services = []
try:
    # The services know each other by file; keys are made at a first start.
    one = start()
    two = start()
    with open(work + "/roots", "w") as f: f.write(public_of(one) + " one\n" + public_of(two) + " two\n")
    data = [one.data, two.data]
    one.stop(), two.stop()
    def again(i, *more): return Service(build, "--sealed", "--builder-keys", work + "/roots", "--lease-ms", "2000", "--auth", "--admin-key-file", work + "/admin",
                                        *more, store=["--data", "", *store], data=data[i])
    one, two = again(0, "--compile-here=0"), again(1)
    services = [one, two]

    # Enrolment: by a key with the scope "work" and a proof that the private key is there.
    keys = {scope: one.json("POST", "/v1/admin/keys", {"tenant": "ops", "scopes": [scope]}, key=admin) for scope in ("work", "read")}
    cards = {w: card(w) for w in ("w1", "w2", "rogue", "guest")}
    check("a reader enrols nobody", one.call("POST", "/v1/builders", cards["w1"], key=keys["read"]["key"])[0] == 403)
    r = one.call("POST", "/v1/builders", {**cards["w1"], "name": "somebody"}, key=keys["work"]["key"])
    check("nor one without the private key", r[0] == 422 and b"/proof" in r[2], r)
    for w in ("w1", "rogue"):
        r = one.call("POST", "/v1/builders", cards[w], key=keys["work"]["key"])
        check("enrolled", r[0] == 201 and r[1]["Location"] == "/v1/builders/" + cards[w]["public"], r)
    check("the same name and key at each call", card("w1") == cards["w1"])
    listed = two.json("GET", "/v1/builders", key=admin)["builders"]
    check("seen by the other service", {x["name"] for x in listed} == {"w1", "rogue"} and all(x["key"] == keys["work"]["id"] for x in listed), listed)

    # What an enrolled worker builds is served by all, with its name.
    w1 = start_worker("w1")
    def ask(s, n, **more): return s.call("POST", "/v1/compile", matmul(n, target="host"), key=admin, **more)
    r = ask(one, 40)
    made = json.loads(r[2])
    check("built by the worker", r[0] == 200, r)
    k = made["key"]
    p = provenance(two, k)
    said = p.get("statement", {}).get("predicate", {})
    check("who built it", p["signature"] == "enrolled" and p["builder"] == "w1" and p["signer"] == cards["w1"]["public"] and said["builder"]["program"] == "kiln-worker", p)
    check("of what, with what", said["key"] == k and said["build"] == made["build"] and said["compiler"] and "gcc" in said["toolchain"].lower() + "gcc" and said["job"] and said["epoch"] == 1 and
          {x["digest"]["sha256"] for x in p["statement"]["subject"]} == {x["sha256"] for x in made["artifacts"]}, said)
    payload = base64.b64decode(p["envelope"]["payload"])
    with open(work + "/pub.der", "wb") as f: f.write(bytes.fromhex("302a300506032b6570032100" + p["signer"]))
    with open(work + "/pae", "wb") as f: f.write(b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload))
    with open(work + "/sig", "wb") as f: f.write(base64.b64decode(p["envelope"]["signatures"][0]["sig"]))
    v = subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", work + "/pub.der", "-in", work + "/pae", "-sigfile", work + "/sig"], capture_output=True)
    check("openssl agrees", v.returncode == 0, v)
    check("what services build is theirs", json.loads(ask(two, 41)[2])["key"] and provenance(one, json.loads(ask(two, 41)[2])["key"])["signature"] == "enrolled")

    # A worker that nobody enrolled: what it built is not served; a service builds it itself.
    w1.terminate(); w1.wait(30)
    guest = start_worker("guest")
    time.sleep(1)
    check("an honest one knows", '"not-enrolled"' in open(work + "/guest.log").read())
    guest.terminate(); guest.wait(30)
    guest = start_worker("guest", sealed="0")
    r = ask(one, 42)
    other = ask(two, 42)
    k2 = json.loads(other[2]).get("key")
    check("a service that builds nothing says so", r[0] == 502 and b"not accepted" in r[2], r)
    check("a stranger's kernel is not served", other[0] == 200 and provenance(two, k2)["signer"] == public_of(two), other)
    check("and in the book", book(two, k2, 1) == {"stranger"}, book(two, k2, 1))
    guest.terminate(); guest.wait(30)

    # Rows in the database as any worker can write them. `two` starts anew each time, with nothing in memory.
    good = body_of(k, 1)
    fields = decode(good)
    check("record understood", encode(fields, True) == good and fields[0].decode() == k)
    forged = list(fields); forged[9] = struct.pack("<d", 0.001) # "it takes a nanosecond"
    thief = decode(body_of(k2, max(int(x) for x in sql(f"SELECT version FROM kiln_record WHERE key = '{k2}'").split())))
    rogue_seed = bytes.fromhex(open(work + "/rogue/signing-rogue.key").read().strip())
    stranger_seed = bytes.fromhex(open(work + "/guest/signing-guest.key").read().strip())
    cases = [("forged", encode(forged, True)), ("unsigned", encode(fields, False)), ("stranger", seal(fields, cards["guest"]["public"], stranger_seed, {})),
             ("replayed", encode(thief, True)), ("replayed", seal(fields, cards["rogue"]["public"], rogue_seed, {"epoch": 99}))]
    for version, (why, body) in enumerate(cases, 2):
        plant(k, body)
        two.stop()
        two = services[1] = again(1)
        r = two.call("GET", "/v1/kernels/" + k, key=admin)
        check("the good version is served: " + why, r[0] == 200 and json.loads(r[2])["version"] == 1 and json.loads(r[2])["build"] == made["build"], r)
        check("in the book: " + why, book(two, k, version) == {why}, book(two, k, version))
        check("and not in its history", all(x["version"] == 1 for x in two.json("GET", f"/v1/kernels/{k}/variants", key=admin)["variants"]))
    n = int(sql(f"SELECT max(version) FROM kiln_record WHERE key = '{k}'"))
    check("all of them are there", n == 1 + len(cases), n)
    check("counted", 'kiln_cache_refused_total{tier="postgres"' in two.call("GET", "/metrics", key=admin)[2].decode())
    listed = two.json("GET", "/v1/kernels", key=admin)["kernels"]
    check("nor listed", all(x["key"] != k or x["version"] == 1 for x in listed), listed)

    # A poisoned copy in Redis: a digest that is right, a signature that is not.
    plain = b"%s 1 2 2\n{}" % subprocess.run(["redis-cli", "-u", redis, "GET", "kiln:epoch"], capture_output=True).stdout.strip() + encode(forged, True)
    value = b"r" + hashlib.sha256(plain).hexdigest().encode() + plain
    subprocess.run(["redis-cli", "-u", redis, "-x", "SET", "kiln:r:" + k], input=value, check=True, capture_output=True)
    two.stop()
    two = services[1] = again(1)
    r = json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])
    refused = [l for l in two.call("GET", "/metrics", key=admin)[2].decode().splitlines() if l.startswith('kiln_cache_refused_total{tier="redis"')]
    check("a poisoned copy is not served", r.get("version") == 1 and r.get("predicted_us") != 0.001 and refused and refused[0].endswith(" 1"), (r, refused))

    # What is said of a kernel is signed too: strangers take none away, and make none look better; nor does an old word of who counts.
    rsum = hashlib.sha256(encode(fields, False)[:-32]).hexdigest()
    word = lambda state: f"kiln-verdict/1 {k} {rsum} {state}"
    p = provenance(two, k)
    v = p["verdict"]
    with open(work + "/pub.der", "wb") as f: f.write(bytes.fromhex("302a300506032b6570032100" + v["by"]))
    with open(work + "/pae", "wb") as f: f.write(f"{word(v['state'])} {v['at_ms']}\n{v['text']}".encode())
    with open(work + "/sig", "wb") as f: f.write(bytes.fromhex(v["seal"]))
    o = subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", work + "/pub.der", "-in", work + "/pae", "-sigfile", work + "/sig"], capture_output=True)
    check("openssl agrees with the verdict", o.returncode == 0 and v["by"] == cards["w1"]["public"], (o, v))
    now = int(time.time() * 1000)
    ill = sealed(cards["rogue"]["public"], rogue_seed, word(4), "{}", now)
    lies = [("verdict unsigned", 4, "{}"), ("verdict stranger", 4, sealed(cards["guest"]["public"], stranger_seed, word(4), "{}", now)),
            ("verdict forged", 4, ill.replace(f'"at_ms":{now}', f'"at_ms":{now + 1}')), ("verdict forged", 3, ill), ("verdict unsigned", 3, '{"max_abs":0}')]
    for why, state, text in lies:
        sql(f"DELETE FROM kiln_doc WHERE kind = 'audit'")
        say(k, 1, state, text)
        subprocess.run(["redis-cli", "-u", redis, "DEL", "kiln:r:" + k], check=True, capture_output=True)
        two.stop()
        two = services[1] = again(1)
        r = json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])
        told = [x["detail"].split(":")[0] for x in two.json("GET", "/v1/admin/audit", key=admin)["audit"] if x["action"] == "record-refused" and x["subject"] == k]
        check(f"{why}, state {state}: as before", r.get("version") == 1 and r["quality"]["verification"] == p["verification"] and why in told, (r, told))
    say(k, 1, 3, sealed(cards["rogue"]["public"], rogue_seed, word(3), '{"by_somebody_who_counts":1}', v["at_ms"] - 1000))
    two.stop()
    two = services[1] = again(1)
    check("an older word does not undo a later one", provenance(two, k)["verdict"] == v)
    sql(f"DELETE FROM kiln_verdict WHERE key = '{k}' AND created_ms = 0")

    # "Impossible" as a stranger says it stops nobody from building.
    never = two.json("POST", "/v1/key", matmul(47, target="host"), key=admin)["key"]
    print_ = two.json("GET", "/version")["fingerprint"]
    no = '{"type":"/problems/no-feasible-schedule","title":"no","status":501}'
    sql(f"INSERT INTO kiln_impossible(key, fingerprint, canon, json, created_ms) VALUES('{never}', '{print_}', '', convert_to('{no}', 'UTF8'), 0)")
    r = ask(two, 47)
    check("an unsigned \"impossible\" stops nobody", r[0] == 200, r)
    never = two.json("POST", "/v1/key", matmul(48, target="host"), key=admin)["key"]
    no = sealed(cards["rogue"]["public"], rogue_seed, f"kiln-impossible/1 {never} {print_}", no, now)
    sql(f"INSERT INTO kiln_impossible(key, fingerprint, canon, json, created_ms) VALUES('{never}', '{print_}', '', convert_to('{no}', 'UTF8'), 0)")
    r = ask(two, 48)
    check("one of who counts does, and its seal stays inside", r[0] == 501 and b"seal" not in r[2], r)

    # Verify: another than the builder rebuilds; who was enrolled and lies is found out, and its version goes.
    w1 = start_worker("w1")
    sql(f"DELETE FROM kiln_record WHERE key = '{k}' AND version > 1")
    job = two.json("POST", "/v1/jobs", {"kind": "verify", "key": k}, key=admin)
    time.sleep(3)
    check("its builder may not", two.json("GET", "/v1/jobs/" + job["id"], key=admin)["state"] == "queued")
    check("w2 enrolled", one.call("POST", "/v1/builders", cards["w2"], key=keys["work"]["key"])[0] == 201)
    w2 = start_worker("w2", "verify")
    e = end_of(two, job["id"])
    check("another does", e["state"] == "succeeded" and e["result"]["reproduced"] and e["result"]["same_tools"] and not e["result"]["quarantined"] and
          e["result"]["rebuilt_by"] == cards["w2"]["public"] and e["result"]["builder"] == cards["w1"]["public"], e)
    time.sleep(1.5)
    found = json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])["verification"]
    check("and it is written at the kernel", found.get("reproduced") is True and found.get("rebuilt_by") == cards["w2"]["public"][:16], found)
    lie, other_bytes = list(fields), b"/* another program */\n" + two.call("GET", next(x["href"] for x in made["artifacts"] if x["kind"] == "source"), key=admin)[2]
    at = next(i for i in range(13, len(lie) - 3, 3) if lie[i] == b"source")
    digest = hashlib.sha256(other_bytes).hexdigest()
    lie[at + 1], lie[at + 2] = digest.encode(), struct.pack("<q", len(other_bytes))
    sql(f"INSERT INTO kiln_blob(digest, bytes, created_ms) VALUES('{digest}', decode('{other_bytes.hex()}', 'hex'), 0)")
    two.call("GET", "/v1/kernels/" + k, key=admin)
    value = b""
    for _ in range(100): # the tombstone of the last verdict goes after 5 s
        two.stop()
        two = services[1] = again(1)
        two.call("GET", "/v1/kernels/" + k, key=admin)
        value = subprocess.run(["redis-cli", "-u", redis, "GET", "kiln:r:" + k], check=True, capture_output=True).stdout[:-1]
        if len(value) > 100: break
        time.sleep(1)
    plant(k, seal(lie, cards["rogue"]["public"], rogue_seed, {"epoch": 1}))
    subprocess.run(["redis-cli", "-u", redis, "-x", "SET", "kiln:r:" + k], input=value, check=True, capture_output=True)
    two.stop()
    two = services[1] = again(1)
    r = json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])
    check("an enrolled liar is believed", r["version"] == 2, r)
    refused = [l for l in two.call("GET", "/metrics", key=admin)[2].decode().splitlines() if l.startswith('kiln_cache_refused_total{tier="redis"')]
    check("and an older version that was put back into Redis is not", len(value) > 100 and refused and refused[0].endswith(" 1"), (len(value), refused))
    e = end_of(two, two.json("POST", "/v1/jobs", {"kind": "verify", "request": matmul(40, target="host")}, key=admin)["id"])
    check("until somebody rebuilds", e["state"] == "succeeded" and e["result"]["reproduced"] is False and e["result"]["quarantined"] and e["result"]["builder"] == cards["rogue"]["public"], e)
    time.sleep(1.5)
    r = json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])
    check("then the version before it is served", r.get("version") == 1, r)
    # Brought back as a new version, the same bytes stay away.
    plant(k, body_of(k, 2))
    two.stop()
    two = services[1] = again(1)
    check("a quarantined record does not come back", json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])["version"] == 1)

    # Bundles keep who built what; a service that is alone signs what it took in.
    bundle = two.call("POST", "/v1/exports", {"keys": [k]}, key=admin)
    with open(work + "/trusted", "w") as f: f.write(public_of(two) + "\n")
    three = Service(build, "--trusted-keys", work + "/trusted")
    services.append(three)
    taken = three.json("POST", "/v1/imports", bundle[2], headers={"Content-Type": "application/vnd.kiln.export"})
    p = three.json("GET", f"/v1/kernels/{k}/provenance")
    inner = p["statement"]["predicate"]["imported"]
    check("imported", taken["imported"] == 1 and p["signature"] == "enrolled" and p["signer"] == public_of(three) and inner["bundle_signer"] == public_of(two), p)
    check("its builder is still told", inner["signer"] == cards["w1"]["public"] and json.loads(inner["statement"])["predicate"]["builder"]["name"] == "w1")

    # An enrolment ends by itself.
    r = one.call("POST", "/v1/builders", {**cards["guest"], "expires_seconds": 12}, key=keys["work"]["key"])
    ends = json.loads(r[2]).get("ends_ms", 0)
    check("enrolled for a while", r[0] == 201 and ends > 0, r)
    last = int(sql(f"SELECT max(version) FROM kiln_record WHERE key = '{k}'"))
    brief = list(fields); brief[9] = struct.pack("<d", 0.5)
    plant(k, seal(brief, cards["guest"]["public"], stranger_seed, {"epoch": 1}))
    two.stop()
    two = services[1] = again(1)
    check("counts meanwhile", json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])["version"] == last + 1)
    longer = sql("UPDATE kiln_doc SET json = convert_to(regexp_replace(convert_from(json, 'UTF8'), '\"ends_ms\":[0-9]+', '\"ends_ms\":99999999999999'), 'UTF8')"
                 f" WHERE kind = 'builder' AND id = '{cards['guest']['public']}' RETURNING 1")
    two.stop()
    two = services[1] = again(1)
    check("who can write makes it no longer", longer and json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])["version"] == 1)
    check("enrolled anew", one.call("POST", "/v1/builders", {**cards["guest"], "expires_seconds": 2}, key=keys["work"]["key"])[0] == 201)
    time.sleep(2.5)
    two.stop()
    two = services[1] = again(1)
    check("then no more", json.loads(two.call("GET", "/v1/kernels/" + k, key=admin)[2])["version"] == 1)

    # The API key that enrolled them ends, and with it they.
    check("key ends", one.call("DELETE", "/v1/admin/keys/" + keys["work"]["id"], key=admin)[0] == 204)
    check("its builders too", two.json("GET", "/v1/builders", key=admin)["builders"] == [])
    two.stop()
    two = services[1] = again(1)
    check("what they built is not served", two.call("GET", "/v1/kernels/" + k, key=admin)[0] in (404, 410))
    r = ask(two, 40)
    check("but built anew", r[0] == 200 and provenance(two, k)["signer"] == public_of(two), r)
finally:
    for p in running:
        if p.poll() is None: p.terminate()
    for p in running: p.wait(60)
    for s in services: s.stop()
    subprocess.run(["psql", "-q", pg, "-c", f"DROP DATABASE {name} WITH (FORCE)"])
    subprocess.run(["rm", "-rf", work])
sys.exit(check.end())
