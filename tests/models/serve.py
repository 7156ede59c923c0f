"""A service for models: a private port, private data, ended by its pid. Needs nothing but the client."""
import os, shutil, subprocess, sys, tempfile, time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "..", "api", "python"), os.path.join(here, "..")]
import kiln
from free_port import free_port


class Serving:
    """`client`: of a service with an empty store, as long as the with lasts."""

    def __init__(self, build, *flags):
        self.build, self.flags = build, flags

    def start(self):
        self.process = subprocess.Popen([self.build + "/kilnd", "--listen", f"127.0.0.1:{self.port}", "--data", self.work + "/data", "--hwspecs", "hwspecs",
                                         *self.flags], stderr=open(self.work + "/log", "a"))
        for _ in range(900):
            try:
                return self.client.transport.call("GET", "/readyz")
            except kiln.Error:
                time.sleep(0.1)
        raise SystemExit(open(self.work + "/log").read())

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        self.work = tempfile.mkdtemp(prefix="kiln-models.")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = kiln.Client(self.url, cache=self.work + "/cache", timeout=900)
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.work, ignore_errors=True)
