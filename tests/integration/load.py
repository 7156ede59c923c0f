#!/usr/bin/env python3
"""The service under many clients, in short: connections spread over loops, 128 busy at once, a full house, heads too long, memory given back. Usage: load.py [BUILD]
The long form, against other servers, is `make bench-service`."""
import hashlib, json, os, re, selectors, socket, subprocess, sys, time
sys.path.insert(0, os.path.dirname(__file__))
from service import Checks, Service

build = sys.argv[1] if len(sys.argv) > 1 else "build"
check = Checks()
ASK = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"

def dial(s): return socket.create_connection(("127.0.0.1", s.port), timeout=10)
def answered(sockets, seconds=10):
    """How many of the sockets get an answer in time."""
    sel, good, until = selectors.DefaultSelector(), 0, time.monotonic() + seconds
    for x in sockets: sel.register(x, selectors.EVENT_READ)
    while sel.get_map() and time.monotonic() < until:
        for key, _ in sel.select(0.2):
            sel.unregister(key.fileobj)
            good += key.fileobj.recv(4096).startswith(b"HTTP/1.1 200")
    return good
def ask(sockets, seconds=10):
    for x in sockets: x.sendall(ASK)
    return answered(sockets, seconds)
def memory(s): return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{s.process.pid}/status").read()).group(1)) / 1024

s = Service(build, "--http-threads", "3")
body = '{"op":"Relu","inputs":[{"name":"x","dtype":"f32","shape":[1000]}],"target":"host"}'
for _ in range(2): status, headers, _ = s.call("POST", "/v1/compile", body, {"Content-Type": "application/json"})
check("a hit", status == 200 and "hit" in headers["Cache-Status"], headers)

# 2,000 connections at once over three loops, all answered twice; when they have gone, so has their memory.
idle = memory(s)
many = [dial(s) for _ in range(2000)]
check("2000 connections", ask(many) == 2000 and ask(many) == 2000)
each = (memory(s) - idle) * 1024 / 2000
check("memory of a connection", each < 20, each)
for x in many: x.close()
until = time.monotonic() + 10
while memory(s) > idle + 4 and time.monotonic() < until: time.sleep(0.1)
check("memory is given back", memory(s) < idle + 4, (idle, memory(s)))

# Exactly as many busy clients as the library takes events at a time, in step: none may be left waiting.
pace, data = s.data + "/pace", s.data + "/body"
open(data, "w").write(body)
subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", pace, "load-tests/service/pace.c"], check=True)
crowd = [dial(s) for _ in range(3 * 128)]
check("128 a loop, in step", all(ask(crowd) == len(crowd) for _ in range(20)))
for x in crowd: x.close()
for n in 1, 128:
    r = subprocess.run([pace, str(s.port), str(n), "1000", "1", "POST", "/v1/compile", data], capture_output=True, text=True, timeout=60)
    check(f"1000 hits a second over {n} connections", r.returncode == 0, r)

# Bytes that come one by one, and requests in one piece.
with dial(s) as x:
    for b in ASK:
        x.sendall(bytes([b]))
        time.sleep(0.001)
    check("byte by byte", answered([x]) == 1)
    x.sendall(ASK * 10)
    got = b""
    while got.count(b"HTTP/1.1 200") < 10: got += x.recv(65536)
    check("ten in a row", got.count(b"{\"live\":true}") == 10, got)

# A large artifact: once prepared it is a file in memory, sent page by page. The same bytes to everyone, however they are asked for and taken.
def files_of(s):
    """The replies that the service holds as files. Other descriptors come and go while they are listed."""
    folder, found = f"/proc/{s.process.pid}/fd", []
    for f in os.listdir(folder):
        try: found += [f] * ("kiln-reply" in os.readlink(f"{folder}/{f}"))
        except FileNotFoundError: pass
    return found
product = '{"op":"MatMul","inputs":[{"name":"a","dtype":"f16","shape":[256,256]},{"name":"b","dtype":"f16","shape":[256,256]}],"target":"nvidia-h200"}'
made = json.loads(s.call("POST", "/v1/compile", product, {"Content-Type": "application/json"})[2])
href = max(made["artifacts"], key=lambda a: a["bytes"])["href"]
first = s.call("GET", href)[2]
check("a large artifact", len(first) > 16384 and hashlib.sha256(first).hexdigest() == href.split("/")[-1], len(first))
check("it became a file", len(files_of(s)) == 1, files_of(s))
status, headers, _ = s.call("HEAD", href)
check("its head", status == 200 and headers["Content-Length"] == str(len(first)), headers)
check("a part of it", s.call("GET", href, headers={"Range": "bytes=100-199"})[2] == first[100:200])
GET = f"GET {href} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
with dial(s) as x:
    x.sendall(GET * 20 + b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") # nothing is read before all is asked
    time.sleep(0.2)
    got = b""
    while part := x.recv(3000): got += part
    check("twenty in a row", got.count(first) == 20 and got.endswith(b'{"live":true}'), len(got))
gone = [dial(s) for _ in range(20)]
for x in gone: x.sendall(GET * 50)
for x in gone: x.close() # in the middle of it
def asked():
    began = time.monotonic()
    check("the same again", s.call("GET", href)[2] == first)
    return time.monotonic() - began
soonest = min(asked() for _ in range(5))
check("at once", soonest < 0.2, soonest) # a cork that stays in waits for 0.2 s, each time

# Heads: long ones are served, longer ones refused by name, whatever is too long for the connection's memory is refused by the library.
check("a head of 5 KB", s.call("GET", "/livez", headers={"X-Long": "x" * 5400})[0] == 200)
status, _, text = s.call("GET", "/livez", headers={"X-Long": "x" * 6200})
check("431", status == 431 and b"header_bytes" in text, (status, text))
status, _, text = s.call("GET", "/v1/jobs?x=" + "x" * 4100)
check("414", status == 414 and b"uri_bytes" in text, (status, text))
# A query of many members costs the connection's memory nothing, and its last one is read.
many = "&".join(f"k{i}=v" for i in range(300))
check("300 members", s.call("GET", "/v1/kernels?" + many, timeout=10)[0] == 200 and s.call("GET", f"/v1/kernels?{many}&limit=0", timeout=10)[0] == 422)
with dial(s) as x:
    x.sendall(ASK[:-2] + b"X-Long: " + b"x" * 30000 + b"\r\n\r\n")
    check("far too long", x.recv(4096)[9:12] in (b"431", b"413"))
check("stop", s.stop() == 0)

# A full house: who comes later waits, and is served when somebody leaves.
s = Service(build, "--connections", "16", "--http-threads", "2")
seats = [dial(s) for _ in range(16)]
check("16 seats", ask(seats) == 16)
late = [dial(s) for _ in range(4)]
for x in late: x.sendall(ASK)
check("no seat for four more", answered(late, 0.5) == 0)
for x in seats[:8]: x.close()
check("until others leave", answered(late) == 4)
for x in seats[8:] + late: x.close()
check("stop when full", s.stop() == 0)
sys.exit(check.end())
