#!/usr/bin/env python3
"""Toolchains that never end: a compile's child is killed when its job is cancelled and at its deadline, for the C compiler and for NVRTC, and nothing of the service hangs with
it. Usage: cancel.py [BUILD]"""
import json, os, subprocess, sys, tempfile, threading, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
work = tempfile.mkdtemp(prefix="kiln-test.")
mark = str(7 * 10**8 + os.getpid()) # seconds that only these children sleep
with open(work + "/cc", "w") as f:
    f.write(f'#!/bin/sh\ncase "$*" in *--version*|*-dumpversion*) exec cc "$@";; esac\nexec sleep {mark}\n')
os.chmod(work + "/cc", 0o755)
# An NVRTC that knows one architecture and compiles for ever, in a loop that no callback interrupts.
with open(work + "/nvrtc.c", "w") as f:
    f.write("""#include <stddef.h>
int nvrtcVersion(int *a, int *b) { return *a = 13, *b = 0; }
int nvrtcGetNumSupportedArchs(int *n) { return *n = 1, 0; }
int nvrtcGetSupportedArchs(int *a) { return *a = 90, 0; }
int nvrtcCreateProgram(void **p, const char *s, const char *n, int k, const char *const *h, const char *const *i) { return *p = "", 0; }
int nvrtcCompileProgram(void *p, int n, const char *const *o) { for (volatile int x = 0;; x++) {} }
int nvrtcGetProgramLogSize(void *p, size_t *n) { return *n = 1, 0; }
int nvrtcGetProgramLog(void *p, char *t) { return *t = 0; }
int nvrtcGetPTXSize(void *p, size_t *n) { return *n = 1, 0; }
int nvrtcGetPTX(void *p, char *t) { return *t = 0; }
int nvrtcGetCUBINSize(void *p, size_t *n) { return *n = 0, 0; }
int nvrtcGetCUBIN(void *p, char *t) { return 0; }
const char *nvrtcGetErrorString(int e) { return "an error"; }
""".replace("return *a = 13, *b = 0;", "*a = 13; *b = 0; return 0;"))
subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", work + "/libnvrtc.so.13", work + "/nvrtc.c"], check=True)

def children(s):
    """Command lines of all that descends from the service."""
    tree, lines = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f: tree.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(pid))
            with open(f"/proc/{pid}/cmdline") as f: lines[int(pid)] = f.read().replace("\0", " ")
        except OSError: pass
    todo, found = [s.process.pid], []
    while todo:
        for pid in tree.get(todo.pop(), []):
            todo.append(pid)
            found.append(lines.get(pid, ""))
    return [line for line in found if mark in line or "libnvrtc" in line]

def until(seconds, f):
    end = time.monotonic() + seconds
    while not f() and time.monotonic() < end: time.sleep(0.05)
    return f()

def relu(target): return {"op": "Relu", "inputs": [{"name": "x", "dtype": "f32", "shape": [1000]}], "target": target}

for tool, target in ("KILN_CC", "host"), ("KILN_NVRTC", "nvidia-h100-sxm5"):
    place = work + ("/cc" if tool == "KILN_CC" else "/libnvrtc.so.13")
    s = Service(build, "--compiles", "1", environ={tool: place})
    if target != "host":
        ids = [t["id"] for t in s.json("GET", "/v1/targets")["targets"]]
        target = next(i for i in ids if "h100" in i or "h200" in i)
    status, headers, _ = s.call("POST", "/v1/compile", relu(target), {"Prefer": "respond-async"})
    check(f"{tool}: under way", status == 202 and until(20, lambda: children(s)), (status, children(s)))
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(s.call("POST", "/v1/compile", relu(target))))
    waiter.start()
    time.sleep(0.5)
    began = time.monotonic()
    check(f"{tool}: cancelled", s.call("DELETE", headers["Location"])[0] == 202)
    check(f"{tool}: its child is gone", until(8, lambda: not children(s)), children(s))
    job = s.json("GET", headers["Location"], headers={"Prefer": "wait=10"})
    check(f"{tool}: so is its job", job["state"] == "cancelled", job)
    waiter.join(30)
    check(f"{tool}: who waited is told", answers and answers[0][0] == 502 and b"cancelled" in answers[0][2], answers)
    check(f"{tool}: soon", time.monotonic() - began < 10)
    status, headers, _ = s.call("POST", "/v1/compile", relu(target), {"Prefer": "respond-async"})
    check(f"{tool}: the one thread is free for it again", status == 202 and until(20, lambda: children(s)), (status, children(s)))
    s.call("DELETE", headers["Location"])
    check(f"{tool}: stop", s.stop() == 0)
    s = Service(build, "--deadline-ms", "1500", environ={tool: place})
    began = time.monotonic()
    status, _, text = s.call("POST", "/v1/compile", relu(target))
    check(f"{tool}: its deadline", status == 504 and b"compile-timeout" in text and time.monotonic() - began < 4, (status, text, time.monotonic() - began))
    check(f"{tool}: no child stays", until(2, lambda: not children(s)), children(s))
    check(f"{tool}: counted", b'kiln_sandbox_kills_total{reason="timeout"} 1' in s.call("GET", "/metrics")[2])
    check(f"{tool}: stop again", s.stop() == 0)
sys.exit(check.end())
