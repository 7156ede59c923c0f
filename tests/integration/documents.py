"""What README.md, docs/api.md and `make run` tell a newcomer to type, typed: every curl and every command of this tree, against a service that service/run.sh
started. usage: documents.py BUILD"""
import json, os, re, signal, subprocess, sys, tempfile, time, zipfile
sys.path.append("tests")
from free_port import free_port
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks

build = os.path.abspath(sys.argv[1])
check, root = Checks(), os.getcwd()
work = tempfile.mkdtemp(prefix="kiln-test.")
at = f"127.0.0.1:{free_port()}"

def commands(text, start):
    """Lines that begin so, with those that go on: after a backslash, or in quotes that are still open."""
    lines, out = text.splitlines(), []
    while lines:
        one = lines.pop(0)
        if not re.match(r" +" + start, one): continue
        while lines and (one.endswith("\\") or one.count("'") % 2): one += "\n" + lines.pop(0)
        out.append(re.sub(r"  +#[^'\n]*$", "", one.strip()))
    return out

def typed(command, what):
    command = command.replace("localhost:8787", at).replace("127.0.0.1:8787", at).replace("build/kiln", build + "/kiln")
    if command.startswith("curl"): command = command.replace("curl -sS", "curl -sS --fail-with-body -D head", 1)
    r = subprocess.run(["bash", "-c", command], cwd=work, capture_output=True, text=True, timeout=120, env={**os.environ, "KILN_URL": "http://" + at})
    check(f"{what}: {command.splitlines()[0][:120]}", r.returncode == 0, (r.returncode, r.stdout[:300], r.stderr[-300:]))
    return r.stdout

def shows(command, got):
    """What the page says comes back."""
    if "text/x-cuda" in command: check("CUDA source comes back", "__global__" in got, got[:200])
    elif "text/x-c" in command: check("C source comes back", "#include" in got or "void" in got, got[:200])
    elif "/compile" in command and command.startswith("curl"): check("a key, quality and binding come back", {"key", "build", "quality", "binding", "manifest", "artifacts", "verification"} <= set(json.loads(got)), got[:300])
    elif command.startswith("build/kiln run"): check("it ran, timed and compared", re.search(r"error|differ|equal|reference", got) and re.search(r"[mu]s", got), got[-400:])

log = open(work + "/log", "w")
run = subprocess.Popen(["sh", "service/run.sh", build], stdout=log, stderr=log, env={**os.environ, "KILN_LISTEN": at, "KILN_DATA": work + "/data"})
try:
    for _ in range(200):
        if "Kiln answers at" in open(work + "/log").read() and open(work + "/log").read().count("curl") >= 3: break
        time.sleep(0.1)
    for c in commands(open(work + "/log").read(), "curl"): shows(c, typed(c, "make run"))
    readme, api = open("README.md").read(), open("docs/api.md").read()
    first = commands(readme, "curl")
    check("the documents have commands", len(first) == 1 and len(commands(api, "curl")) >= 5 and len(commands(readme, "build/kiln ")) >= 4)
    for c in first: shows(c, typed(c, "README.md"))
    for c in commands(readme, "build/kiln "): shows(c, typed(c, "README.md"))
    key = json.loads(typed(first[0], "README.md"))["key"]
    with open(work + "/my-gpu.json", "w") as f: json.dump(dict(json.load(open("hwspecs/nvidia-h200.json")), id="my-gpu"), f)
    for c in commands(api, "curl"):
        c = c.replace("KEY", key)
        shows(c, typed(c, "docs/api.md"))
        if "-o kernel.kiln" in c:
            names = zipfile.ZipFile(work + "/kernel.kiln").namelist()
            check("a zip, its manifest first", names[0] == "manifest.json" and len(names) > 2, names)
        if "-X PUT" in c: check("made", " 201 " in open(work + "/head").readline(), open(work + "/head").read())
    seen = {}
    for want in ("hit", "304"):
        more = "" if want == "hit" else f" -H 'If-None-Match: {seen['etag']}'"
        typed(first[0] + more, "again")
        head = open(work + "/head").read()
        seen = {l.split(":", 1)[0].lower(): l.split(":", 1)[1].strip() for l in head.splitlines() if ":" in l} | {"status": head.split()[1]}
        check("the second time it is a " + want, seen["cache-status"].startswith("kiln; hit") if want == "hit" else seen["status"] == "304", seen)
finally:
    run.send_signal(signal.SIGTERM)
    try: run.wait(30)
    except subprocess.TimeoutExpired: run.kill()
    subprocess.run(["rm", "-rf", work])
sys.exit(check.end())
