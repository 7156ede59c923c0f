"""Quotas of a tenant are one for the fleet: two services on one PostgreSQL, a tenant whose record says what it may have. usage: fleet_quotas.py BUILD"""
import json, os, sys, tempfile, threading, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, matmul

build = sys.argv[1]
check = Checks()
secret = "an-administrators-first-key-0123456789"
folder = tempfile.mkdtemp(prefix="kiln-test.")
open(folder + "/admin", "w").write(secret + "\n")
one = Service(build, "--auth", "--admin-key-file", folder + "/admin")
url = one.store[-1]
os.mkdir(folder + "/two")
two = Service(build, "--auth", "--admin-key-file", folder + "/admin", data=folder + "/two", store=["--data", folder + "/two", "--postgres", url])

def quota(tenant, **q):
    check("quota of " + tenant, one.call("PUT", "/v1/admin/tenants/" + tenant, q, key=secret)[0] == 204)
    return json.loads(one.call("POST", "/v1/admin/keys", {"tenant": tenant, "scopes": ["read", "compile", "tune"]}, key=secret)[2])["key"]

def everywhere(key):
    for _ in range(200):
        if two.call("GET", "/v1/kernels", key=key)[0] == 200: return
        time.sleep(0.05)
    raise SystemExit("the other service never learns the key")

try:
    # Compiles of a day: three, wherever they are asked for.
    few = quota("few", compiles_per_day=3)
    everywhere(few)
    got = [(one, two)[i % 2].call("POST", "/v1/compile", matmul(60 + i), key=few)[0] for i in range(6)]
    check("three compiles in the whole fleet", got == [200, 200, 200, 429, 429, 429], got)
    check("a hit is none", two.call("POST", "/v1/compile", matmul(60), key=few)[0] == 200)
    book = json.loads(two.call("GET", "/v1/admin/audit", key=secret)[2])["audit"]
    put = [x for x in book if x["action"] == "tenant-put" and x["subject"] == "few"]
    check("the book says who gave which quota", len(put) == 1 and json.loads(put[0]["detail"]) == {"compiles_per_day": 3}, book)

    # Calls of a minute: what one service let through, the other takes off within a second or two.
    slow = quota("slow", rate=40)
    everywhere(slow)
    n = sum(one.call("GET", "/v1/kernels", key=slow)[0] == 200 for _ in range(60))
    two.call("GET", "/v1/kernels", key=slow)
    time.sleep(2.5)
    m = 0
    while two.call("GET", "/v1/kernels", key=slow)[0] == 200 and m < 60: m += 1
    check("calls are counted together", n >= 38 and n + m <= 50, (n, m))

    # Live jobs: a compile over the bound is refused as well, not built aside.
    busy = quota("busy", jobs=1)
    everywhere(busy)
    body = {"kind": "retune", "request": matmul(70)}
    first = one.call("POST", "/v1/jobs", body, key=busy)
    second = two.call("POST", "/v1/jobs", {**body, "request": matmul(71)}, key=busy)
    third = two.call("POST", "/v1/compile", matmul(72), key=busy)
    check("live jobs", (first[0], second[0], third[0]) == (202, 429, 429), (first, second, third))

    # Room: what a tenant may keep is in its record; the service itself sets no bound.
    small = quota("small", store_mib=1)
    everywhere(small)
    codes = [(one, two)[i % 2].call("POST", "/v1/compile", matmul(80 + i), key=small)[0] for i in range(80)] if os.environ.get("KILN_FULL") else []
    check("its room ends", not codes or 507 in codes, codes)
    for bad in ({"rate": -1}, {"store_mib": "1"}, {"jobs": 1e9}, {"quota": 1}):
        check("bad quota %s" % bad, one.call("PUT", "/v1/admin/tenants/small", bad, key=secret)[0] == 422)
finally:
    one.stop()
    two.stop()
sys.exit(check.end())
