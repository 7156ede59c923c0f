"""A service for a test: started on a private port with private data, asked over HTTP, ended by its pid."""
import http.client, json, os, re, socket, ssl, subprocess, tempfile, time

class Service:
    def __init__(self, build, *flags, environ=None, tls=None, data=None):
        self.data = data or tempfile.mkdtemp(prefix="kiln-test.")
        self.tls = tls
        self.log_path = os.path.join(self.data, f"log-{time.monotonic_ns()}")
        self.log = open(self.log_path, "w")
        env = {k: v for k, v in os.environ.items() if not k.startswith("KILN_") or k == "KILN_NVRTC"}
        self.process = subprocess.Popen([os.environ.get("KILND", build + "/kilnd"), "--listen", "127.0.0.1:0", "--data", self.data, "--hwspecs", "hwspecs", *flags],
                                        stderr=self.log, env={**env, **(environ or {})})
        self.port = None
        for _ in range(300):
            text = open(self.log_path).read()
            m = re.search(r'"listening","message":"127\.0\.0\.1:(\d+)"', text)
            if m and '"ready"' in text:
                self.port = int(m.group(1))
                return
            if self.process.poll() is not None:
                raise SystemExit("kilnd ended: " + text)
            time.sleep(0.05)
        raise SystemExit("kilnd did not become ready: " + text)

    def connection(self, timeout=60):
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, key=None, timeout=60):
        c = self.connection(timeout)
        h = dict(headers or {})
        if key:
            h["Authorization"] = "Bearer " + key
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            h.setdefault("Content-Type", "application/json")
        c.request(method, path, body, h)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, {k.title(): v for k, v in r.getheaders()}, data

    def json(self, *args, **more):
        return json.loads(self.call(*args, **more)[2])

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()

class Checks:
    failed = 0
    def __call__(self, name, ok, seen=""):
        if not ok:
            self.failed += 1
            print("FAIL", name, str(seen)[:600])

def matmul(m, **more):
    return {"op": "MatMul", "inputs": [{"name": "a", "dtype": "f32", "shape": [m, 16]}, {"name": "b", "dtype": "f32", "shape": [16, 24]}], **more}

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)
