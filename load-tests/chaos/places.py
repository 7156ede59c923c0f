"""Where the processes of the fleet run, and how their connections to the databases are hurt: Loopback (a TCP proxy in between) or Namespaces (each in a
network of its own, hurt by links, packet filters and queues). Both: url_host(name), prefix(name), host(service), hurt(rng) -> what was done, heal()."""
import os, pathlib, subprocess, sys, threading
sys.path.append("tests")
from free_port import free_port

class Loopback:
    """Four routes through one proxy: PostgreSQL and Redis, for services and for workers."""
    databases = "127.0.0.1"
    missing = []

    def __init__(self, work, pg_port, redis_port, spawn):
        here = pathlib.Path(__file__).parent
        self.routes = [("pg", free_port(), pg_port), ("pg", free_port(), pg_port), ("redis", free_port(), redis_port), ("redis", free_port(), redis_port)]
        subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-o", work / "proxy", here / "proxy.c", "-lpthread"], check=True)
        self.proxy = spawn("proxy", work / "proxy", *(f"{at}=127.0.0.1:{to}" for _, at, to in self.routes), stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
        assert self.proxy.stdout.readline() == "ready\n"

    def prefix(self, name): return []
    def flags(self, name): return []
    def host(self, name): return "127.0.0.1"
    def port(self, name): return free_port()
    def address(self, name, database):
        return f"127.0.0.1:{self.routes[(database == 'redis') * 2 + name.startswith('worker')][1]}"

    def tell(self, i, command):
        self.proxy.stdin.write(f"{i} {command}\n")
        self.proxy.stdin.flush()

    def hurt(self, kind, rng):
        """The function that ends it."""
        i = rng.randrange(len(self.routes))
        self.tell(i, {"delay": f"delay {rng.randrange(20, 400)}", "hole": "hole", "refuse": "refuse", "cut": "cut"}[kind])
        return lambda: self.tell(i, "pass")

    def heal(self):
        for i in range(len(self.routes)): self.tell(i, "pass")
    def close(self): pass

def run(*argv, check=True, **more):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **more)
    if check and r.returncode: raise RuntimeError(" ".join(map(str, argv)) + ": " + r.stderr.strip())
    return r.returncode == 0

class Namespaces:
    """A bridge for the databases (they stay outside), a network namespace a process: its own link to that bridge, which is what gets hurt, and for
    services one more link for clients, which stays whole."""
    def __init__(self, work, pg_port, redis_port, spawn, names):
        self.tag, self.names, self.pg_port, self.redis_port = f"k{os.getpid() % 100000}", names, pg_port, redis_port
        self.net = 16 + os.getpid() % 200
        self.databases, self.missing, self.lock = f"10.{self.net}.0.1", [], threading.Lock()
        self.broken = {}
        try:
            run("ip", "link", "add", self.tag + "b", "type", "bridge")
            run("ip", "addr", "add", self.databases + "/24", "dev", self.tag + "b")
            run("ip", "link", "set", self.tag + "b", "up")
            for i, name in enumerate(names): self.add(i, name)
        except (RuntimeError, OSError) as e:
            self.close()
            raise PermissionError(str(e))
        for probe, words in (("delay by netem", ["netem", "delay", "1ms"]), ("a slow link by tbf", ["tbf", "rate", "1mbit", "burst", "32kbit", "latency", "400ms"])):
            if self.inside(names[0], "tc", "qdisc", "add", "dev", "back", "root", *words, check=False): self.inside(names[0], "tc", "qdisc", "del", "dev", "back", "root", check=False)
            else: self.missing.append(probe)
        for probe, words in (("refusal by iptables", ["-j", "REJECT", "--reject-with", "tcp-reset"]), ("loss by iptables", ["-m", "statistic", "--mode", "random", "--probability", "0.3", "-j", "DROP"])):
            rule = ["OUTPUT", "-p", "tcp", "--dport", "9", *words]
            if self.inside(names[0], "iptables", "-A", *rule, check=False): self.inside(names[0], "iptables", "-D", *rule)
            else: self.missing.append(probe)

    def add(self, i, name):
        ns, back, front = f"{self.tag}{i}", f"{self.tag}b{i}", f"{self.tag}f{i}"
        run("ip", "netns", "add", ns)
        run("ip", "link", "add", back, "type", "veth", "peer", "name", "back", "netns", ns)
        run("ip", "link", "set", back, "master", self.tag + "b", "up")
        run("ip", "link", "add", front, "type", "veth", "peer", "name", "front", "netns", ns)
        run("ip", "addr", "add", f"10.{self.net}.{100 + i}.1/30", "dev", front)
        run("ip", "link", "set", front, "up")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"10.{self.net}.0.{10 + i}/24", "dev", "back"], ["link", "set", "back", "up"],
                      ["addr", "add", f"10.{self.net}.{100 + i}.2/30", "dev", "front"], ["link", "set", "front", "up"]):
            run("ip", "-n", ns, *words)

    def inside(self, name, *argv, check=True): return run("ip", "netns", "exec", f"{self.tag}{self.names.index(name)}", *argv, check=check)
    def prefix(self, name): return ["ip", "netns", "exec", f"{self.tag}{self.names.index(name)}"]
    def flags(self, name): return ["--allow-public"]
    def host(self, name): return f"10.{self.net}.{100 + self.names.index(name)}.2"
    def port(self, name): return 8787
    def address(self, name, database): return f"{self.databases}:{self.pg_port if database == 'pg' else self.redis_port}"

    def hurt(self, kind, rng):
        """cut: the link goes down and up again; hole: a database's packets vanish; refuse: its connections are reset; delay: a slow link, or loss."""
        name, to = rng.choice(self.names), rng.choice([self.pg_port, self.redis_port])
        drop = {"hole": ["DROP"], "refuse": ["REJECT", "--reject-with", "tcp-reset"]}
        with self.lock:
            if self.broken.get(name): return lambda: None
            self.broken[name] = True
            if kind == "cut":
                run("ip", "-n", f"{self.tag}{self.names.index(name)}", "link", "set", "back", "down")
            elif kind == "delay":
                slow = [w for probe, w in (("delay by netem", ["netem", "delay", "200ms"]), ("a slow link by tbf", ["tbf", "rate", "256kbit", "burst", "16kbit", "latency", "400ms"]))
                        if probe not in self.missing]
                if slow: self.inside(name, "tc", "qdisc", "replace", "dev", "back", "root", *slow[0])
                elif "loss by iptables" not in self.missing: self.inside(name, "iptables", "-A", "OUTPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", "0.3", "-j", "DROP")
            elif kind == "hole" or "refusal by iptables" not in self.missing:
                self.inside(name, "iptables", "-A", "OUTPUT", "-p", "tcp", "--dport", str(to), "-j", *drop[kind])
                if kind == "hole": self.inside(name, "iptables", "-A", "INPUT", "-p", "tcp", "--sport", str(to), "-j", "DROP")
        return lambda: self.mend(name)

    def mend(self, name):
        with self.lock:
            self.inside(name, "iptables", "-F", check=False)
            self.inside(name, "tc", "qdisc", "del", "dev", "back", "root", check=False)
            run("ip", "-n", f"{self.tag}{self.names.index(name)}", "link", "set", "back", "up", check=False)
            self.broken[name] = False

    def heal(self):
        for name in self.names: self.mend(name)

    def close(self):
        for i in range(len(self.names)):
            run("ip", "link", "del", f"{self.tag}b{i}", check=False)
            run("ip", "link", "del", f"{self.tag}f{i}", check=False)
            run("ip", "netns", "del", f"{self.tag}{i}", check=False)
        run("ip", "link", "del", self.tag + "b", check=False)
