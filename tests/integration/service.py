"""A service for a test: started on a private port with private data, asked over HTTP, ended by its pid."""
import http.client, json, os, re, socket, ssl, subprocess, tempfile, time

class Service:
    def __init__(self, build, *flags, environ=None, tls=None, data=None, store=None, logs=None):
        self.data = data or tempfile.mkdtemp(prefix="kiln-test.")
        self.tls, self.build = tls, build
        self.store = store or self.make_store()
        self.log_path = os.path.join(logs or self.data, f"log-{time.monotonic_ns()}")
        self.log = open(self.log_path, "w")
        env = {k: v for k, v in os.environ.items() if not k.startswith("KILN_") or k == "KILN_NVRTC"}
        self.process = subprocess.Popen([os.environ.get("KILND", build + "/kilnd"), "--listen", "127.0.0.1:0", "--data", self.data, "--hwspecs", "hwspecs", *self.store[2:], *flags],
                                        stderr=self.log, env={**env, **(environ or {})})
        self.port = None
        for _ in range(300):
            text = open(self.log_path).read()
            m = re.search(r'"listening","message":"127\.0\.0\.1:(\d+)"', text)
            if m and '"ready"' in text:
                self.port = int(m.group(1))
                self.contract = None
                self.contract = Contract(json.loads(self.call("GET", "/openapi.json")[2]))
                return
            if self.process.poll() is not None:
                raise SystemExit("kilnd ended: " + text)
            time.sleep(0.05)
        raise SystemExit("kilnd did not become ready: " + text)

    def make_store(self):
        """Where a worker finds the store: the folder, or with KILN_API_POSTGRES (a URL up to the database's name) a fresh database."""
        base = os.environ.get("KILN_API_POSTGRES")
        if not base:
            return ["--data", self.data]
        name = "t%d" % time.monotonic_ns()
        subprocess.run(["psql", "-q", base + "postgres", "-c", "CREATE DATABASE " + name], check=True)
        return ["--data", self.data, "--postgres", base + name]

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
        answer = r.status, {k.title(): v for k, v in r.getheaders()}, data
        if self.contract:
            self.contract.judge(method, path, *answer)
        return answer

    def kiln(self, *args, env=None, **more):
        """The command line's status, stdout and stderr."""
        r = subprocess.run([self.build + "/kiln", *args], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "KILN_URL": f"http://127.0.0.1:{self.port}", **(env or {})}, **more)
        return r.returncode, r.stdout, r.stderr

    def json(self, *args, **more):
        return json.loads(self.call(*args, **more)[2])

    def stop(self):
        for line in self.contract.wrong if self.contract else []:
            print("FAIL contract:", line)
            Checks.broken += 1
        self.contract = None
        self.process.terminate()
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()

class Contract:
    """The OpenAPI text of a service: every answer must be one that it names, in a form that it names, by the schema that it names."""
    def __init__(self, text):
        import jsonschema
        self.api, self.wrong = text, []
        self.check = lambda schema, value: jsonschema.Draft202012Validator({**schema, "components": text["components"]}).validate(value)
        self.paths = [(re.compile("^" + re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(p)) + "$"), p) for p in text["paths"]]

    def judge(self, method, path, status, headers, data):
        plain = path.split("?")[0]
        found = [p for pattern, p in self.paths if pattern.match(plain)]
        op = self.api["paths"][found[0]].get("get" if method == "HEAD" else method.lower()) if found else None
        if not op:
            return
        answer = op["responses"].get(str(status))
        if not answer:
            return self.wrong.append(f"{method} {path}: status {status} is not in the OpenAPI text")
        if "$ref" in answer:
            answer = self.api["components"]["responses"][answer["$ref"].split("/")[-1]]
        media = headers.get("Content-Type", "").split(";")[0]
        content = answer.get("content")
        if content and data and method != "HEAD" and media not in content:
            return self.wrong.append(f"{method} {path}: {status} as {media} is not in the OpenAPI text")
        if content and data and "json" in media and "Content-Encoding" not in headers:
            try:
                self.check(content[media]["schema"], json.loads(data))
            except Exception as e:
                self.wrong.append(f"{method} {path}: {status}: {str(e)[:400]}")

class Checks:
    failed = 0
    broken = 0 # answers against the contract, of all services
    def end(self):
        print("# %d failed" % (self.failed + Checks.broken))
        return 1 if self.failed + Checks.broken else 0
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
