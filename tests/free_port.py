"""A port of 127.0.0.1 that nothing uses and no outgoing connection will be given: below the range that the kernel lends to clients, so that a
server which is killed and started again finds its port free (a client that keeps dialling a lent port may even connect to itself).
As a program it prints the port."""
import random, socket

FIRST = 10000  # below it are the services that people know by number

def free_port():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f: last = int(f.read().split()[0])
    draw = random.SystemRandom()
    for _ in range(1000):
        port = draw.randrange(FIRST, last) if last > FIRST else 0
        with socket.socket() as s:
            try: s.bind(("127.0.0.1", port))
            except OSError: continue
            return s.getsockname()[1]
    raise OSError("no port of 127.0.0.1 is free")

if __name__ == "__main__": print(free_port())
