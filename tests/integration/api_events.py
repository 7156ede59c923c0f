#!/usr/bin/env python3
"""Jobs as a client sees them: lists, long polls, server-sent events with resume, changes, the status page's snapshot. Usage: api_events.py [BUILD]"""
import json, os, re, subprocess, sys, threading, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service, matmul

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
s = Service(build)

def events(path, last=None, until=lambda e: False, seconds=20, key=None):
    """The events of a stream: (id, kind, data), until one satisfies `until`, the stream ends, or time is over."""
    c = s.connection(seconds)
    h = {"Last-Event-ID": str(last)} if last is not None else {}
    if key:
        h["Authorization"] = "Bearer " + key
    c.request("GET", path, headers=h)
    r = c.getresponse()
    check("stream", r.status == 200 and r.getheader("Content-Type") == "text/event-stream", (r.status, r.getheaders()))
    out, one = [], {}
    try:
        while True:
            line = r.readline().decode().rstrip("\n")
            if line and not line.startswith(":"):
                k, v = line.split(": ", 1)
                one[k] = v
            elif not line and "data" in one:
                out.append((int(one["id"]), one["event"], json.loads(one["data"])))
                one = {}
                if until(out[-1]):
                    break
            elif not line:
                one = {}
                if r.isclosed():
                    break
    except TimeoutError:
        pass
    c.close()
    return out

try:
    check("nothing yet", s.json("GET", "/v1/jobs") == {"jobs": []})
    got = []
    follower = threading.Thread(target=lambda: got.extend(events("/v1/events", until=lambda e: e[1] == "succeeded")))
    follower.start()
    time.sleep(0.5)
    run = s.call("POST", "/v1/compile", matmul(50), headers={"Prefer": "respond-async"})
    href = run[1]["Location"]
    t = time.monotonic()
    job = s.json("GET", href, headers={"Prefer": "wait=20"})
    check("long poll", job["state"] == "succeeded" and time.monotonic() - t < 15, job)
    follower.join(20)
    kinds = [e[1] for e in got if e[2].get("key") == job["key"]]
    check("all events", "queued" in kinds and kinds[-1] == "succeeded" and [e[0] for e in got] == sorted({e[0] for e in got}), got)
    mine = events(href + "/events")
    check("events of a job", [e[1] for e in mine][0] == "queued" and mine[-1][1] == "succeeded" and all(e[2]["job"] == job["id"] for e in mine), mine)
    check("resume", events(href + "/events", last=mine[0][0]) == mine[1:])
    check("resume of all", [e[0] for e in events("/v1/events", last=mine[0][0] - 1, until=lambda e: e[0] == mine[-1][0])][0] == mine[0][0])
    check("a stranger's number", events(href + "/events", last="x") == mine)
    began = time.monotonic()
    status, _, text = s.call("GET", "/v1/events?seconds=0", headers={"Last-Event-ID": str(mine[0][0] - 1)})
    check("what there is already", status == 200 and text.count(b"\nid: ") >= len(mine) and time.monotonic() - began < 2, text)
    status, _, text = s.call("GET", "/v1/events?seconds=2")
    check("for two seconds", status == 200 and 1.5 < time.monotonic() - began < 8, (time.monotonic() - began, text))
    for wrong in ("", "x", "-1", "86401", "100000", "1.5", "1&seconds=1"):
        check("seconds=" + wrong, all(s.call("GET", at + "/events?seconds=" + wrong)[0] == 422 for at in ("/v1", href)))
    check("no such job", s.call("GET", "/v1/jobs/none")[0] == 404 and s.call("GET", "/v1/jobs/none/events")[0] == 404)
    listed = s.json("GET", "/v1/jobs?kind=compile&state=succeeded&limit=1")
    check("list", [j["id"] for j in listed["jobs"]] == [job["id"]] and listed["jobs"][0]["kernel"].endswith(job["key"]), listed)
    check("list by key", s.json("GET", "/v1/jobs?key=" + job["key"])["jobs"][0]["id"] == job["id"] and s.json("GET", "/v1/jobs?key=kk1-0")["jobs"] == [])
    for q in ("state=nothing", "kind=x"):
        check("bad query " + q, s.call("GET", "/v1/jobs?" + q)[0] == 422)
    for q in ("0", "abc", "201", "1.5", "6.8e-58", "+5", "%205", "", "1&limit=1"):
        check("bad limit " + q, all(s.call("GET", at + "?limit=" + q)[0] == 422 for at in ("/v1/jobs", "/v1/kernels")))
    check("over is over", s.call("DELETE", href)[0] == 409)
    etag = s.call("GET", "/v1/jobs/" + job["id"])[1].get("Etag")
    check("a change names its state", s.call("PATCH", href, {"priority": 3})[0] == 428 and s.call("PATCH", href, {"priority": 3}, {"If-Match": '"0"'})[0] == 412, etag)

    # Jobs of one's own, done by a worker on the same store.
    before = s.json("GET", "/v1/jobs?limit=1")["jobs"][0]["id"]
    for body in ({}, {"kind": "dance", "request": matmul(50)}, {"kind": "verify"}, {"kind": "verify", "request": {"op": "Nothing"}}, {"kind": "verify", "request": matmul(50), "priority": 101}):
        check("bad job", s.call("POST", "/v1/jobs", body)[0] == 422, body)
    check("nothing was made", s.json("GET", "/v1/jobs?limit=1")["jobs"][0]["id"] == before)
    made = s.call("POST", "/v1/jobs", {"kind": "verify", "request": matmul(50)})
    wish = json.loads(made[2])
    check("job", made[0] == 202 and wish["kind"] == "verify" and wish["state"] == "queued" and wish["key"] == job["key"], made)
    check("one at a time", json.loads(s.call("POST", "/v1/jobs", {"kind": "verify", "request": matmul(50)})[2])["id"] == wish["id"])
    tag = s.call("GET", made[1]["Location"])[1]["Etag"]
    t = time.monotonic()
    waiting = s.call("GET", made[1]["Location"], headers={"Prefer": "wait=1", "If-None-Match": tag})
    check("nothing new", waiting[0] == 304 and time.monotonic() - t > 0.8, waiting)
    changed = s.call("PATCH", made[1]["Location"], {"priority": 7, "paused": True}, {"If-Match": tag})
    check("paused", changed[0] == 200 and json.loads(changed[2])["state"] == "paused" and json.loads(changed[2])["priority"] == 7, changed)
    check("too late", s.call("PATCH", made[1]["Location"], {"paused": False}, {"If-Match": tag})[0] == 412)
    resumed = s.call("PATCH", made[1]["Location"], {"paused": False}, {"If-Match": changed[1]["Etag"]})
    check("resumed", resumed[0] == 200 and json.loads(resumed[2])["state"] == "queued", resumed)
    worker = subprocess.Popen([build + "/kiln-worker", "run", *(s.store[2:] or s.store), "--name", "tester"], stderr=subprocess.DEVNULL)
    try:
        over = s.json("GET", made[1]["Location"], headers={"Prefer": "wait=30"}, timeout=60)
        check("done by a worker", over["state"] == "succeeded" and over["result"].get("reproduced") is True, over)
        def seen(): return any(w["name"] == "tester" for w in s.json("GET", "/v1/status")["workers"])
        until = time.monotonic() + 30
        while not seen() and time.monotonic() < until: time.sleep(0.2)
        check("workers are seen", seen())
        other = json.loads(s.call("POST", "/v1/jobs", {"kind": "retune", "request": matmul(50), "budget_trials": 4})[2])
        gone = s.call("DELETE", "/v1/jobs/" + other["id"])
        end = s.json("GET", "/v1/jobs/" + other["id"], headers={"Prefer": "wait=30"}, timeout=60)
        check("cancelled", gone[0] in (202, 409) and end["state"] in ("cancelled", "succeeded"), (gone, end))
        lines = s.call("GET", "/metrics")[2].decode()
        check("a worker in the metrics", re.search(r'^kiln_workers{target="\w+",state="working"} 1$', lines, re.M))
        check("its jobs too", re.search(r'^kiln_jobs{state="succeeded",class="\w+",tenant=""} [1-9]', lines, re.M))
        heads = [l.split()[2] for l in lines.splitlines() if l.startswith("# TYPE")]
        check("one head a metric", len(heads) == len(set(heads)), [h for h in heads if heads.count(h) > 1])
    finally:
        worker.terminate()
        worker.wait(60)

    # Many followers do not cost a query each, and one that leaves is forgotten.
    streams = [s.connection() for _ in range(50)]
    for c in streams:
        c.request("GET", "/v1/events")
    time.sleep(0.3)
    for c in streams[:25]:
        c.sock.close()
    s.call("POST", "/v1/compile", matmul(51))
    for c in streams[25:]:
        r = c.getresponse()
        text = b""
        while b"succeeded" not in text:
            text += r.readline()
        c.sock.close() if c.sock else None
    check("fifty streams", True)

    # The snapshot behind the page.
    time.sleep(1.2)
    status = s.json("GET", "/v1/status")
    check("status", len(status["kernels"]) >= 2 and status["counters"]["kiln_misses_total"] >= 2 and status["job_states"]["succeeded"] >= 2 and any(t["tier"] == "memory" for t in status["tiers"]), status)
    page = s.call("GET", "/")
    text = page[2].decode()
    check("page", page[0] == 200 and page[1]["Content-Type"].startswith("text/html") and "default-src 'none'" in page[1]["Content-Security-Policy"], page[1])
    check("no outside resource", "http://" not in text.replace("http://www.w3.org/2000/svg", "") and "https://" not in text and 'src="' not in text)
    check("page is kept", s.call("GET", "/", headers={"If-None-Match": page[1]["Etag"]})[0] == 304)

    # The end of the service ends streams and waits.
    c = s.connection()
    c.request("GET", "/v1/events")
    r = c.getresponse()
    t = time.monotonic()
    code = s.stop()
    check("drain with streams", code == 0 and time.monotonic() - t < 5 and r.read() is not None, (code, time.monotonic() - t))
finally:
    if s.process.poll() is None:
        s.stop()
sys.exit(check.end())
