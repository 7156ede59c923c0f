#!/usr/bin/env python3
"""What is shipped: Debian packages (the same bytes twice, run from where they are unpacked), units, READY=1, settings by weight, the chart. Usage: packaging.py [BUILD]"""
import glob, os, re, shutil, socket, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
work = tempfile.mkdtemp(prefix="kiln-test.")
env = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}

def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, env={**env, **more})

def debs(name):
    r = run("packaging/debian/build.sh", build, work + "/" + name)
    check("packages", r.returncode == 0, r)
    return sorted(glob.glob(work + "/" + name + "/*.deb"))

try:
    first, second = debs("a"), debs("b")
    check("three packages", sorted(os.path.basename(p).split("_")[0] for p in first) == ["kiln", "kiln-cli", "kiln-worker"], first)
    check("the same bytes twice", [open(a, "rb").read() == open(b, "rb").read() for a, b in zip(first, second)] == [True] * 3)
    root = work + "/root"
    for p in first:
        check("unpack", run("dpkg-deb", "-x", p, root).returncode == 0)
        control = work + "/control-" + os.path.basename(p)
        run("dpkg-deb", "-e", p, control)
        check("scripts", all(run("sh", "-n", f).returncode == 0 for f in glob.glob(control + "/p*")))
    programs = os.listdir(root + "/usr/bin")
    check("every program, as in the image", sorted(programs) == ["kiln", "kiln-child", "kiln-gpu-run", "kiln-worker", "kilnd"]
          and all(re.search(rf"/src/build/{p}\s", open("Dockerfile").read()) for p in programs), programs)
    depends = run("dpkg-deb", "-f", next(p for p in first if "/kiln_" in p), "Depends").stdout
    check("depends", "libmicrohttpd12" in depends and "libsodium23" in depends and "kiln-worker" in depends, depends)

    # The daemon as packaged, from its file of settings, says when it is ready.
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(work + "/notify")
    notify.settimeout(30)
    with open(work + "/kilnd.conf", "w") as f:
        f.write(open(root + "/etc/kiln/kilnd.conf").read() + f"listen = 127.0.0.1:0\ndata = {work}/data\n")
    daemon = subprocess.Popen([root + "/usr/bin/kilnd", "--config", work + "/kilnd.conf", "--hwspecs", root + "/usr/share/kiln/hwspecs"], stderr=open(work + "/log", "w"),
                              env={**env, "NOTIFY_SOCKET": work + "/notify"})
    check("READY=1", notify.recv(100) == b"READY=1")
    check("it answers", run(root + "/usr/bin/kiln", "targets", KILN_URL="unix:" + work + "/data/kiln.sock").returncode == 0)
    daemon.terminate()
    check("STOPPING=1", notify.recv(100) == b"STOPPING=1" and daemon.wait(20) == 0)

    # Flags over environment over file; what is wrong is said with its place.
    def config(*flags, **more):
        return run(build + "/kilnd", "--config", work + "/c", "--check-config", *flags, **more)
    open(work + "/c", "w").write("rate = nonsense\n")
    check("wrong in the file", config().returncode == 78 and "/c:1" in config().stderr, config())
    open(work + "/c", "w").write("rate = 5\nmemo_mib = 1\n")
    check("right", config().returncode == 0, config())
    check("variable over file", "KILN_RATE" in config(KILN_RATE="x").stderr)
    check("flag over variable", config("--rate", "7", KILN_RATE="6").returncode == 0 and "--rate" in config("--rate", "x", KILN_RATE="6").stderr)
    check("TLS needs both", config("--tls-cert", "/c").returncode == 78, config("--tls-cert", "/c"))
    open(work + "/c", "w").write("nothing = 5\n")
    check("no such name", config().returncode == 78 and "/c:1" in config().stderr)

    if shutil.which("systemd-analyze"):
        for unit in ("kilnd", "kiln-worker"):
            text = open(f"packaging/systemd/{unit}.service").read()
            text = text.replace("/usr/bin/", os.path.realpath(root) + "/usr/bin/").replace("User=kiln", "User=nobody").replace("Group=kiln", "Group=nogroup")
            open(f"{work}/{unit}.service", "w").write(text)
            r = run("systemd-analyze", "verify", "--man=no", f"{work}/{unit}.service")
            wrong = [l for l in (r.stdout + r.stderr).splitlines() if unit + ".service" in l and "nobody" not in l and "not found" not in l]
            check("unit " + unit, not wrong, wrong)
            bad = [l for l in run("systemd-analyze", "security", "--offline=yes", f"{work}/{unit}.service").stdout.splitlines() if "Overall exposure" in l]
            check("exposure of " + unit, bad and float(re.search(r": ([0-9.]+)", bad[0]).group(1)) < 5, bad)
    for path in glob.glob("packaging/helm/kiln/templates/*.yaml"):
        text = open(path).read()
        opened, closed = len(re.findall(r"{{-? *(?:if|range)", text)), len(re.findall(r"{{-? *end", text))
        values = {v.split(".")[0] for v in re.findall(r"\.Values\.([a-zA-Z.]+)", text)}
        check("chart " + path, opened == closed and values <= {"image", "service", "workers", "existingSecret"}, (opened, closed, values))
finally:
    shutil.rmtree(work)
sys.exit(check.end())
