#!/usr/bin/env python3
"""Bad input to a real service: each gets a 4xx problem, and the service still answers afterwards. Usage: api_hostile.py [BUILD]"""
import json, socket, sys, time
from service import Checks, Service, matmul

check = Checks()
service = Service(sys.argv[1] if len(sys.argv) > 1 else "build", "--idle-seconds", "5")

def call(method, path, body=None, **headers):
    return service.call(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})

def problem(name, want, slug, pointer=None, *args, **kw):
    status, headers, data = call(*args, **kw)
    try:
        p = json.loads(data)
    except ValueError:
        p = {}
    ok = status in want and headers.get("Content-Type") == "application/problem+json" and p.get("status") == status
    ok = ok and (slug is None or p["type"] == "/problems/" + slug) and (pointer is None or p.get("pointer", "").startswith(pointer))
    check(name, ok, (status, data[:300]))
    return headers, p

def raw(text, wait=20):
    c = socket.create_connection(("127.0.0.1", service.port), timeout=wait)
    try:
        c.sendall(text)
        return c.recv(65536)
    except (ConnectionError, TimeoutError):
        return b""
    finally:
        c.close()

def heads():
    """Heads of every length around what a connection has room for: each is answered, whatever is left for the answer."""
    def sweep(name, make, lengths):
        seen = {n: raw(make(n), 5)[:12].decode() for n in lengths}
        bad = {n: s for n, s in seen.items() if s not in ("HTTP/1.1 200", "HTTP/1.1 400", "HTTP/1.1 404", "HTTP/1.1 414", "HTTP/1.1 422", "HTTP/1.1 431")}
        check("every length is answered: " + name, not bad, bad)
        check("up to refusal: " + name, len(set(seen.values())) > 1, seen)
    end, near = b" HTTP/1.1\r\nHost: x\r\n\r\n", [*range(3000, 7400, 400), *range(7400, 8400, 29)]
    sweep("path", lambda n: b"GET /" + b"a" * n + end, near)
    sweep("query", lambda n: b"GET /v1/kernels?target=" + b"a" * n + end, near)
    sweep("members", lambda n: b"GET /v1/kernels?" + b"a&" * (n // 2) + end, near)
    sweep("body behind it", lambda n: b"POST /v1/graphs?target=" + b"a" * n + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", near)
    sweep("one header", lambda n: b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"a" * n + b"\r\n\r\n", near)
    sweep("headers", lambda n: b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * n + b"\r\n", range(60, 160, 1))
    sweep("cookies", lambda n: b"GET /livez HTTP/1.1\r\nHost: x\r\nCookie: " + b"a=b; " * n + b"\r\n\r\n", range(60, 160, 1))

def json_post(body, **kw):
    return ("POST", "/v1/compile", body if isinstance(body, (str, bytes)) else json.dumps(body)), {"Content_Type": "application/json", **kw}

try:
    bad = [
        ("truncated", '{"op":"MatMul","inputs":[', {400}, "invalid-json", None),
        ("duplicate member", '{"op":"MatMul","op":"Add"}', {400}, "invalid-json", None),
        ("NaN", '{"op":"MatMul","inputs":[{"name":"a","dtype":"f32","shape":[NaN,8]}]}', {400}, "invalid-json", None),
        ("empty", "", {400}, "invalid-json", None),
        ("deep", "[" * 1000, {400, 413}, None, None),
        ("2^63", json.dumps(matmul(2 ** 63)), {400, 413, 422}, None, "/inputs/0/shape/0"),
        ("beyond 64 bits", json.dumps(matmul(8)).replace("8", "21474836e47", 1), {413, 422}, None, "/inputs/0/shape/0"),
        ("beyond a double", json.dumps(matmul(8)).replace("8", "1e999", 1), {400, 413, 422}, None, None),
        ("zero", json.dumps(matmul(0)), {413, 422}, None, "/inputs/0/shape/0"),
        ("negative", json.dumps(matmul(-4)), {413, 422}, None, "/inputs/0/shape/0"),
        ("unknown op", '{"op":"Nope","inputs":[]}', {422}, "unknown-op", "/op"),
        ("unknown member", json.dumps(matmul(8, nope=1)), {422}, "invalid-request", "/nope"),
        ("unknown target", json.dumps(matmul(8, target="nope")), {422}, "unsupported-target", "/target"),
        ("wrong quality", json.dumps(matmul(8, quality="best")), {422}, "invalid-request", "/quality"),
        ("shapes", json.dumps({"op": "MatMul", "inputs": [{"name": "a", "dtype": "f32", "shape": [8, 8]}, {"name": "b", "dtype": "f32", "shape": [9, 8]}]}),
         {422}, "shape-mismatch", "/inputs"),
        ("not UTF-8", b'{"op":"\xff\xfe"}', {400}, "invalid-json", None),
    ]
    for name, body, want, slug, pointer in bad:
        args, kw = json_post(body)
        problem(name, want, slug, pointer, *args, **kw)
    text = {"Content_Type": "text/plain"}
    headers, p = problem("expression", {400, 422}, None, None, "POST", "/compile?a=f32:8x8", "c[M,N +=! a[M,N]", **text)
    check("position", p.get("errors", [{}])[0].get("line") == 1 and p["errors"][0].get("col", 0) > 1, p)
    problem("query", {422}, "invalid-request", None, "POST", "/compile?a=%zz", "c[M] = a[M]", **text)
    problem("media type", {415}, "unsupported-media-type", None, "POST", "/compile", "x", Content_Type="image/png")
    problem("accept", {406}, "not-acceptable", None, "POST", "/compile", json.dumps(matmul(8)), Content_Type="application/json", Accept="image/png")
    headers, _ = problem("method", {405}, "method-not-allowed", None, "DELETE", "/v1/compile")
    check("Allow", headers.get("Allow") == "POST", headers)
    headers, _ = problem("method", {405}, "method-not-allowed", None, "POST", "/v1/targets/x", "{}")
    check("Allow of two", set(headers.get("Allow", "").split(", ")) == {"GET", "HEAD", "PUT"}, headers)
    for path in ("/nope", "/v1/blobs/sha256/../../etc/passwd", "/v1/kernels/..%2f..%2fetc", "/v1/jobs/../x", "/v1/targets/..x", "/v1/blobs/sha256/" + "0" * 64):
        problem(path, {404}, "not-found", None, "GET", path)
    problem("NUL in path", {400}, "invalid-path", None, "GET", "/v1/jobs/%00")
    problem("long path", {414}, "limit-exceeded", None, "GET", "/" + "a" * 5000)
    problem("target id", {422}, "invalid-request", None, "PUT", "/v1/targets/..x", "{}", Content_Type="application/json")
    spec = json.load(open("hwspecs/x86-64-avx2.json"))
    problem("built-in target", {409}, None, None, "PUT", "/v1/targets/x86-64-avx2", json.dumps(spec), Content_Type="application/json")
    problem("bad member", {422}, "invalid-hwspec", "/units", "PUT", "/v1/targets/t1", json.dumps(dict(spec, id="t1", units=-1)), Content_Type="application/json")
    for want in (201, 200):
        status, headers, data = call("PUT", "/v1/targets/t1", json.dumps(dict(spec, id="t1")), **{"Content-Type": "application/json"})
        check("put target", status == want and json.loads(data)["id"] == "t1", (status, data[:200]))

    head = b"POST /v1/compile HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10485760\r\n\r\n"
    began = time.time()
    got = raw(head + b"[" * 1000)
    check("10 MB of [", got.startswith(b"HTTP/1.1 413") and b"body_bytes" in got and time.time() - began < 5, got[:200])
    chunk = b"10000\r\n" + b"[" * 65536 + b"\r\n"
    got = raw(b"POST /v1/compile HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 160)
    check("10 MB in chunks", got.startswith(b"HTTP/1.1 413") and b"body_bytes" in got, got[:200])
    got = raw(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"".join(b"h%d: %s\r\n" % (i, b"x" * 100) for i in range(2000)) + b"\r\n")
    check("header flood", got.startswith(b"HTTP/1.1 431"), got[:100])
    heads()
    for n in (1, 5000, 600000, 4000000): # refused by its head, and the client hears why although it sends on
        got = raw(b"POST /v1/nope HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n)
        check(f"refused with {n} bytes to come", got.startswith(b"HTTP/1.1 404") and b"not-found" in got, got[:200])
    got = raw(b"POST /v1/nope HTTP/1.1\r\nHost: x\r\nContent-Length: 400000000\r\nExpect: 100-continue\r\n\r\n", 3)
    check("who asks first is told at once", got.startswith(b"HTTP/1.1 404"), got[:100])
    slow = socket.create_connection(("127.0.0.1", service.port), timeout=40)
    slow.sendall(b"POST /v1/compile HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    check("others while one is slow", call("GET", "/livez")[0] == 200)
    try:
        ended = slow.recv(1000)
        check("slow client is let go", not ended or ended.startswith(b"HTTP/1.1 4"), ended[:100])
    except TimeoutError:
        check("slow client is let go", False)
    status, _, data = call("GET", "/openapi.json")
    check("openapi", status == 200 and "/v1/compile" in json.loads(data)["paths"])
    check("metrics", b"kiln_requests_total" in call("GET", "/metrics")[2])
    check("operators", any(True for _ in json.loads(call("GET", "/v1/operators")[2])))
    check("alive", service.process.poll() is None and call("GET", "/readyz")[0] == 200)
finally:
    check("ends on SIGTERM", service.stop() == 0)
sys.exit(check.end())
