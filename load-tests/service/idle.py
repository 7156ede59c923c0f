#!/usr/bin/env python3
"""Connections held open, and memory: N keep-alive connections answered once and left idle, all of them answered again at the end.
Usage: idle.py BUILD [CONNECTIONS] [REQUESTS]. REQUESTS more over 16 connections say whether memory grows."""
import os, re, resource, selectors, socket, subprocess, sys, tempfile, time

build, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10000
more = int(sys.argv[3]) if len(sys.argv) > 3 else 200000
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard == resource.RLIM_INFINITY or hard < n + 600 else n + 600, hard))
data = tempfile.mkdtemp(prefix="kiln-bench.")
daemon = subprocess.Popen([build + "/kilnd", "--listen", "127.0.0.1:0", "--data", data, "--hwspecs", "hwspecs", "--idle-seconds", "600"], stderr=open(data + "/log", "w"))
for _ in range(200):
    m = re.search(r'"127\.0\.0\.1:(\d+)"', open(data + "/log").read())
    if m and '"ready"' in open(data + "/log").read():
        break
    time.sleep(0.05)
port = int(m.group(1))

def rss(field="VmRSS"):
    return int(re.search(field + r":\s+(\d+)", open(f"/proc/{daemon.pid}/status").read()).group(1)) / 1024

ASK = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
def ask(sockets):
    """One request on each; how many were answered."""
    sel, good = selectors.DefaultSelector(), 0
    for s in sockets:
        s.sendall(ASK)
        sel.register(s, selectors.EVENT_READ)
    end = time.monotonic() + 20
    left = len(sockets)
    while left and time.monotonic() < end:
        for key, _ in sel.select(1):
            sel.unregister(key.fileobj)
            left -= 1
            good += key.fileobj.recv(4096).startswith(b"HTTP/1.1 200")
    sel.close()
    return good

ok = False
try:
    time.sleep(1)
    idle = rss()
    sockets = []
    began = time.monotonic()
    for i in range(n):
        s = socket.create_connection(("127.0.0.1", port))
        sockets.append(s)
        if len(sockets) % 500 == 0 or i == n - 1: # those just made; each is answered once
            assert ask(sockets[i // 500 * 500:]) == len(sockets) - i // 500 * 500, "a fresh connection was not answered"
    took = time.monotonic() - began
    held = rss()
    again = sum(ask(sockets[i:i + 500]) for i in range(0, n, 500))
    for s in sockets:
        s.close()
    time.sleep(1)
    def load(count):
        r = subprocess.run(["wrk", "-t1", "-c16", f"-d{count}s", f"http://127.0.0.1:{port}/livez"], capture_output=True, text=True)
        return int(re.search(r"(\d+) requests in", r.stdout).group(1))
    done = load(2)
    before, passed = rss(), 0
    while passed < more:
        passed += load(4)
    print(f"idle {idle:.1f} MB; {n} connections in {took:.1f} s, {held:.1f} MB, {again} answered again; "
          f"{passed} requests more: {before:.1f} -> {rss():.1f} MB")
    ok = idle < 30 and again == n and rss() < before + 1
finally:
    daemon.terminate()
    daemon.wait(30)
sys.exit(0 if ok else 1)
