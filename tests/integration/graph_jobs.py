"""The compile of a model as a job: a row with progress, cancelled by a wish, taken up again after SIGKILL by another process with the kernels that were
done, handed on when a service is ended. With KILN_API_POSTGRES on a database of PostgreSQL. Usage: graph_jobs.py [BUILD]"""
import json, os, shutil, signal, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from service import Service

build, failed = sys.argv[1] if len(sys.argv) > 1 else "build", 0
LEASE = ("--lease-ms", "1500")


def check(name, ok, seen=""):
    global failed
    if not ok:
        failed += 1
        print("FAIL", name, seen)


def model(n, first, size=9):
    """n convolutions, none like another."""
    nodes, x = [], "x"
    inputs = [{"name": "x", "dtype": "f32", "shape": [1, 3, size, size + 4]}]
    for i in range(n):
        shape = [first + 2 * i, inputs[-1]["shape"][0] if i else 3, 3, 3]
        inputs.append({"name": f"w{i}", "dtype": "f32", "shape": shape})
        nodes.append({"op": "Conv", "inputs": [x, f"w{i}"], "outputs": [f"t{i}"], "attrs": {"pads": [1, 1, 1, 1]}})
        x = f"t{i}"
    return {"graph": {"inputs": inputs, "nodes": nodes, "outputs": [x]}}


def state(s, path):
    status, _, data = s.call("GET", path)
    return json.loads(data) if status == 200 else {"state": f"HTTP {status}", "done": 0, "kernels": []}


def wait(s, path, test, seconds=90):
    until = time.time() + seconds
    while True:
        now = state(s, path)
        if test(now) or time.time() > until:
            return now
        time.sleep(0.05)


def over(g):
    return g["state"] in ("succeeded", "failed", "cancelled")


def live(s):
    return [j for j in s.json("GET", "/v1/jobs?kind=model&state=live")["jobs"]]


def resumed():
    """SIGKILL in the middle: the next process on the same store goes on by itself."""
    data = tempfile.mkdtemp(prefix="kiln-test.")
    first = Service(build, *LEASE, data=data)
    status, headers, body = first.call("POST", "/v1/graphs", model(14, 5))
    path = headers["Location"]
    check("accepted", status == 202 and json.loads(body).get("job"), body[:200])
    now = wait(first, path, lambda g: g["done"] >= 4)
    rows = live(first)
    check("a row", len(rows) == 1 and rows[0]["state"] == "running" and path.endswith(rows[0]["key"]), rows)
    wait(first, "/v1/jobs/" + now["job"], lambda j: j.get("progress", {}).get("done", 0) >= 2)
    row = first.json("GET", "/v1/jobs/" + now["job"])
    check("progress of the row", 0 < row["progress"]["done"] <= row["progress"]["total"] == 14, row.get("progress"))
    before = state(first, path)
    done = {k["key"] for k in before["kernels"] if "cache_status" in k}
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    check("killed in the middle", not over(before) and 4 <= len(done) < 14, before["done"])
    second = Service(build, *LEASE, data=data, store=first.store)
    check("known after the restart", state(second, path)["state"] in ("queued", "planning", "compiling"), state(second, path)["state"])
    end = wait(second, path, over)
    check("goes on to its end", end["state"] == "succeeded" and end["done"] == 14, end)
    again = [k for k in end["kernels"] if k["key"] in done and "hit" not in k.get("cache_status", "")]
    check("kernels that were done are not built again", not again and len(done) >= 4, again)
    check("some were built by the second", sum("hit" not in k["cache_status"] for k in end["kernels"]) > 0, end["kernels"])
    row = second.json("GET", "/v1/jobs/" + end["job"])
    check("the row has ended, at the second try", row["state"] == "succeeded" and row["attempt"] >= 1 and row["id"] == now["job"], row)
    check("a hit now", second.call("POST", "/v1/graphs", model(14, 5))[0] == 200)
    second.stop()
    third = Service(build, *LEASE, data=data, store=first.store)
    check("told after another restart", state(third, path)["state"] == "succeeded" and len(state(third, path)["kernels"]) == 14, state(third, path))
    return third


def cancelled(s):
    path = s.call("POST", "/v1/graphs", model(12, 6, 11))[1]["Location"]
    job = state(s, path)["job"]
    wait(s, path, lambda g: g["done"] >= 1)
    status, _, _ = s.call("DELETE", "/v1/jobs/" + job)
    check("cancelled by its row", status == 202, status)
    end = wait(s, path, over)
    check("stops", end["state"] == "cancelled" and end["done"] < 12, end)
    check("the row says so", wait(s, "/v1/jobs/" + job, lambda j: j["state"] == "cancelled")["state"] == "cancelled")
    path = s.call("POST", "/v1/graphs", model(12, 6, 11))[1]["Location"]
    fresh = state(s, path)["job"]
    check("asked again, it is another job", fresh != job, (fresh, job))
    check("DELETE of the model", s.call("DELETE", path)[0] == 202)
    end = wait(s, path, over)
    check("stops again", end["state"] == "cancelled", end)
    check("its row too", wait(s, "/v1/jobs/" + fresh, lambda j: j["state"] == "cancelled")["state"] == "cancelled")


def refused(s):
    path = s.call("POST", "/v1/graphs", {"graph": {"inputs": [{"name": "x", "dtype": "f32", "shape": [2]}], "outputs": ["y"],
                                                   "nodes": [{"op": "NoSuch", "inputs": ["x"], "outputs": ["y"]}]}})[1]["Location"]
    end = wait(s, path, over)
    check("refused", end["state"] == "failed" and end["problem"]["status"] == 422 and end["problem"]["pointer"] == "/graph/nodes/0", end)
    row = s.json("GET", "/v1/jobs/" + end["job"])
    check("the row has the problem", row["state"] == "failed" and row["problem"]["status"] == 422, row)
    check("only services make models", s.call("POST", "/v1/jobs", {"kind": "model", "request": {"op": "Relu", "inputs": [{"name": "x", "dtype": "f32", "shape": [4]}]}})[0] == 422)


def handed_on(s):
    """A service that is ended gives its models back; the next one need not wait for a lease."""
    path = s.call("POST", "/v1/graphs", model(13, 7, 12))[1]["Location"]
    wait(s, path, lambda g: g["done"] >= 2)
    s.stop()
    other = Service(build, *LEASE, data=s.data, store=s.store)
    end = wait(other, path, over)
    check("handed on", end["state"] == "succeeded" and end["done"] == 13, end)
    return other


service = resumed()
try:
    cancelled(service)
    refused(service)
    service = handed_on(service)
finally:
    service.stop()
    shutil.rmtree(service.data, ignore_errors=True)
print("graph_jobs:", "FAILED" if failed else "ok")
sys.exit(1 if failed else 0)
