#!/usr/bin/env python3
"""Codings, ranges, conditions, lookup, keys, explanations, warm-ups, versions, attestations, bundles; every answer against the OpenAPI. Usage: api_more.py [BUILD]"""
import base64, gzip, hashlib, json, os, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, matmul

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
s = Service(build)

def unpack(answer):
    coding = answer[1].get("Content-Encoding")
    if coding == "gzip":
        return gzip.decompress(answer[2])
    if coding == "zstd":
        return subprocess.run(["zstd", "-dc"], input=answer[2], capture_output=True, check=True).stdout
    return answer[2]

def wait_warmup(service, name):
    for _ in range(400):
        w = service.json("GET", "/v1/warmups/" + name)
        if w["state"] != "running":
            return w
        time.sleep(0.1)
    return w

other = None
try:
    first = s.json("POST", "/v1/compile", matmul(32))
    path = "/v1/kernels/" + first["key"]
    source = next(x for x in first["artifacts"] if x["kind"] == "so")
    plain = s.call("GET", source["href"])

    # Codings: the bytes differ, the content does not; digest and tag belong to the bytes sent.
    for coding in ("gzip", "zstd"):
        for where in (path, source["href"]):
            a, b = s.call("GET", where), s.call("GET", where, headers={"Accept-Encoding": coding})
            digest = "sha-256=:" + base64.b64encode(hashlib.sha256(b[2]).digest()).decode() + ":"
            check(coding + " of " + where, b[1].get("Content-Encoding") == coding and unpack(b) == a[2] and len(b[2]) < len(a[2]), b[1])
            check(coding + " digest", b[1]["Repr-Digest"] == digest, b[1])
            check(coding + " tag", b[1]["Etag"] != a[1]["Etag"] and "Accept-Encoding" in b[1]["Vary"], (a[1], b[1]))
            held = s.call("GET", where, headers={"Accept-Encoding": coding, "If-None-Match": b[1]["Etag"]})
            check(coding + " condition", held[0] == 304 and held[1]["Etag"] == b[1]["Etag"] and held[1]["Vary"] == b[1]["Vary"], held)
    for wants, gets in (("gzip;q=0.5, zstd;q=0.1", "gzip"), ("br", None), ("zstd;q=0", None), ("*", "zstd"), ("identity", None), ("gzip, br, zstd", "zstd")):
        check("Accept-Encoding " + wants, s.call("GET", path, headers={"Accept-Encoding": wants})[1].get("Content-Encoding") == gets)

    # Ranges.
    n = len(plain[2])
    for text, part in (("bytes=0-99", plain[2][:100]), ("bytes=100-", plain[2][100:]), ("bytes=-7", plain[2][-7:]), ("bytes=%d-%d" % (n - 1, n + 50), plain[2][-1:])):
        r = s.call("GET", source["href"], headers={"Range": text, "Accept-Encoding": "zstd"})
        at = n - len(part) if text != "bytes=0-99" else 0
        check("range " + text, r[0] == 206 and r[2] == part and r[1]["Content-Range"] == f"bytes {at}-{at + len(part) - 1}/{n}", (r[0], r[1]))
    check("a unit's case", s.call("GET", source["href"], headers={"Range": "Bytes=0-3"})[2] == plain[2][:4])
    check("no range of a HEAD", s.call("HEAD", source["href"], headers={"Range": "bytes=0-3"})[0] == 200)
    check("range outside", s.call("GET", source["href"], headers={"Range": f"bytes={n}-"})[1].get("Content-Range") == f"bytes */{n}")
    for text in ("bytes=5-2", "lines=1-2", "bytes=a-b", "bytes=0-1,3-4", "bytes=-", "bytes=99999999999999999999-"):
        check("no range " + text, s.call("GET", source["href"], headers={"Range": text})[0] == 200)
    check("If-Range", s.call("GET", source["href"], headers={"Range": "bytes=0-1", "If-Range": plain[1]["Etag"]})[0] == 206
          and s.call("GET", source["href"], headers={"Range": "bytes=0-1", "If-Range": '"x"'})[0] == 200)
    check("blob condition", s.call("GET", source["href"], headers={"If-None-Match": plain[1]["Etag"]})[0] == 304)

    # Keys, lookups, explanations.
    k = s.json("POST", "/v1/key", matmul(32))
    check("key", k["key"] == first["key"] and k["workload"] == first["workload"] and "f32[32,16]" in k["components"]["inputs"]["value"], k)
    items = [{"key": first["key"]}, matmul(32), matmul(33), {"key": "kk1-" + "0" * 64}, {"op": "Nothing", "inputs": []}, {}, matmul(32, target="nowhere")]
    r = s.json("POST", "/v1/lookup", {"items": items})["results"]
    check("lookup", [x["state"] for x in r] == ["hit", "hit", "miss", "miss", "invalid", "invalid", "invalid"] and r[0]["build"] == first["build"], r)
    check("lookup compiles nothing", s.call("POST", "/v1/compile", matmul(33), headers={"Cache-Control": "only-if-cached"})[0] == 504)
    check("too many", s.call("POST", "/v1/lookup", {"items": [{}] * 1001})[0] == 413)
    e = s.json("POST", "/v1/explain", {"request": matmul(33), "other": first["key"]})
    check("explain", e["state"] == "miss" and [d["component"] for d in e["other"]["differs"]] == ["inputs"], e)
    near = e["neighbours"][0]
    check("nearest", near["key"] == first["key"] and near["distance"] > 0 and "f32[33,16]" in near["differs"][0]["a"] and "f32[32,16]" in near["differs"][0]["b"], near)
    e = s.json("POST", "/v1/explain", {"request": matmul(32), "other": matmul(32, target="nvidia-h200")})
    check("another target", e["state"] == "hit" and [d["component"] for d in e["other"]["differs"]] == ["target", "target_description"], e)
    check("explain nothing", s.call("POST", "/v1/explain", {})[0] == 422 and s.call("POST", "/v1/explain", {"request": matmul(33), "other": "kk1-x"})[0] == 422)

    # Warm-ups.
    template = matmul(8)
    grid = {"template": template, "vary": [{"at": ["/inputs/0/shape/0"], "values": [8, 16, 24]}, {"at": ["/inputs/1/shape/1"], "values": [24, 16]}]}
    w = s.call("POST", "/v1/warmups", {"name": "small", "grid": grid})
    check("warm-up", w[0] == 202 and json.loads(w[2])["total"] == 6, w)
    done = wait_warmup(s, "small")
    check("warmed", done["state"] == "complete" and done["done"] == 6 and done["failed"] == 0, done)
    again = s.json("POST", "/v1/warmups", {"name": "small", "grid": grid})
    check("the marker names its cover", again["coverage"] == done["coverage"])
    check("warm", wait_warmup(s, "small")["hits"] == 6 and s.call("POST", "/v1/compile", matmul(24), headers={"Cache-Control": "only-if-cached"})[0] == 200)
    for body in ({"name": "x"}, {"name": "../x", "items": [template]}, {"name": "x", "items": []}, {"name": "x", "items": [matmul(3, target="nowhere")]},
                 {"name": "x", "grid": {"template": template, "vary": [{"at": ["/nothing/3"], "values": [1]}]}}, {"name": "x", "grid": {"template": template, "vary": [{"at": [1], "values": []}]}}):
        check("bad warm-up", s.call("POST", "/v1/warmups", body)[0] == 422, body)
    check("large grid", s.call("POST", "/v1/warmups", {"name": "x", "grid": {"template": template, "vary": [{"at": ["/inputs/0/shape/0"], "values": list(range(1, 2000))}]}})[0] == 413)
    check("no warm-up", s.call("GET", "/v1/warmups/none")[0] == 404)

    # Versions, pins, attestations.
    v = s.json("GET", path + "/variants")["variants"]
    check("variants", [x["build"] for x in v] == [first["build"]] and s.call("GET", "/v1/kernels/kk1-" + "0" * 64 + "/variants")[0] == 404, v)
    check("pin", s.call("GET", path + "?pin=" + first["build"])[0] == 200 and s.call("GET", path + "?pin=kb1-0")[0] == 404)
    d = s.json("GET", path + "/attestation")
    body = base64.b64decode(d["payload"])
    claim = json.loads(body)
    check("attestation", claim["predicate"]["build"] == first["build"] and {x["digest"]["sha256"] for x in claim["subject"]} == {x["sha256"] for x in first["artifacts"]}, claim)
    folder = tempfile.mkdtemp(prefix="kiln-test.")
    public = bytes.fromhex(d["signatures"][0]["keyid"])
    check("signer", s.json("GET", "/version")["signer"] == public.hex())
    with open(folder + "/key.der", "wb") as f: # SubjectPublicKeyInfo of Ed25519 (RFC 8410)
        f.write(bytes.fromhex("302a300506032b6570032100") + public)
    kind = d["payloadType"].encode()
    with open(folder + "/pae", "wb") as f:
        f.write(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body))
    with open(folder + "/sig", "wb") as f:
        f.write(base64.b64decode(d["signatures"][0]["sig"]))
    def openssl():
        return subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", folder + "/key.der", "-in", folder + "/pae", "-sigfile", folder + "/sig"], capture_output=True)
    check("openssl agrees", openssl().returncode == 0, openssl())
    with open(folder + "/pae", "ab") as f:
        f.write(b" ")
    check("openssl disagrees", openssl().returncode != 0)

    # Bundles.
    bundle = s.call("POST", "/v1/exports", {})
    media = {"Content-Type": "application/vnd.kiln.export"}
    check("export", bundle[0] == 200 and bundle[1]["Content-Type"] == media["Content-Type"], bundle[:2])
    with open(folder + "/trusted", "w") as f:
        f.write(public.hex() + " the first service\n")
    other = Service(build)
    check("nobody trusts it", other.call("POST", "/v1/imports", bundle[2], media)[0] == 422 and json.loads(other.call("POST", "/v1/imports", bundle[2], media)[2])["type"] == "/problems/signature-invalid")
    check("and nothing was taken", other.json("GET", "/v1/kernels")["kernels"] == [])
    other.stop()
    other = Service(build, "--trusted-keys", folder + "/trusted")
    taken = other.json("POST", "/v1/imports", bundle[2], media)
    check("import", taken["imported"] >= 7 and taken["refused"] == 0, taken)
    got = other.json("POST", "/v1/compile", matmul(32), {"Cache-Control": "only-if-cached"})
    check("imported", got["build"] == first["build"] and got["quality"]["origin"] == "imported" and other.call("GET", source["href"])[2] == plain[2], got)
    check("twice", other.json("POST", "/v1/imports", bundle[2], media) == {"imported": 0, "known": taken["imported"], "refused": 0})
    raw = bytearray(subprocess.run(["zstd", "-dc"], input=bundle[2], capture_output=True, check=True).stdout)
    def repacked(data):
        return subprocess.run(["zstd", "-c"], input=bytes(data), capture_output=True, check=True).stdout
    fresh = Service(build, "--trusted-keys", folder + "/trusted")
    try:
        at = raw.find(plain[2])
        bad = bytearray(raw); bad[at + 70] ^= 1
        r = fresh.json("POST", "/v1/imports", repacked(bad), media)
        check("one byte of an artifact", r.get("refused") == 1 and r["imported"] == taken["imported"] - 1 and fresh.call("POST", "/v1/compile", matmul(32), headers={"Cache-Control": "only-if-cached"})[0] == 504, r)
        bad = bytearray(raw); bad[raw.find(b"kiln-export/1")] ^= 1
        check("one byte of the manifest", fresh.call("POST", "/v1/imports", repacked(bad), media)[0] == 422)
        for junk in (b"", b"x" * 1000, bundle[2][:len(bundle[2]) // 2], repacked(raw[:5000]), repacked(b"\0" * 100000)):
            check("junk", fresh.call("POST", "/v1/imports", junk, media)[0] == 422, junk[:10])
        check("another type", fresh.call("POST", "/v1/imports", bundle[2], {"Content-Type": "text/plain"})[0] == 415)
        check("alive", fresh.call("GET", "/readyz")[0] == 200)
    finally:
        fresh.stop()
    one = s.call("POST", "/v1/exports", {"keys": [first["key"]]})
    check("export of one", one[0] == 200 and len(one[2]) < len(bundle[2]) and s.call("POST", "/v1/exports", {"keys": ["kk1-x"]})[0] == 422)
finally:
    s.stop()
    if other:
        other.stop()
sys.exit(check.end())
