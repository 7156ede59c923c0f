"""kilnd started while its TCP address or its unix socket is held by another process. usage: taken.py BUILD"""
import os, socket, subprocess, sys, tempfile, time
sys.path.append("tests")
from free_port import free_port

build, work = sys.argv[1], tempfile.mkdtemp()
path = work + "/kiln.sock"

def hold(kind, port):
    """A listener as a killed service leaves it, its queue full where it is a unix socket."""
    s = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
    if kind == "unix" and os.path.exists(path): os.unlink(path)
    s.bind(path if kind == "unix" else ("127.0.0.1", port))
    s.listen(0)
    waiting = socket.socket(s.family)
    waiting.connect(s.getsockname())
    return s, waiting

def start(port):
    return subprocess.Popen([build + "/kilnd", "--listen", f"127.0.0.1:{port}", "--socket", path, "--data", work + "/data", "--hwspecs", "hwspecs",
                             "--compile-here=0"], stderr=subprocess.PIPE, text=True)

def listens(d):
    """Whether it came to listen at both; otherwise its last words."""
    said = []
    for line in d.stderr:
        said.append(line)
        if "cannot listen" in line: return False, said
        if '"listening"' in line and path in line: return True, said
    return False, said

for kind in ("tcp", "unix"):
    for leaves in (True, False):
        port = free_port()
        held, d = hold(kind, port), start(port)
        try:
            if leaves:
                time.sleep(0.3)
                for s in held: s.close()
            ok, said = listens(d)
            assert ok == leaves, (kind, leaves, said)
            where = path + ": another service" if kind == "unix" else f"127.0.0.1:{port}: Address already in use"
            assert leaves or where in said[-1], said
        finally:
            for s in held: s.close()
            d.terminate()
            d.stderr.read()
            assert d.wait(30) == (0 if leaves else 1), d.returncode
print("# 4 starts at addresses in use, 0 failed")
