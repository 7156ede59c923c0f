"""One HTTP connection a thread, over TCP or a Unix socket."""
import http.client
import json
import socket
import threading
import urllib.parse

from .errors import ServiceError, Unavailable


class _Unix(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Transport:
    """url: http://HOST:PORT, https://HOST:PORT or unix:/PATH."""

    def __init__(self, url, timeout, token=None):
        self.url, self.timeout, self.token = url.rstrip("/"), timeout, token
        self.local = threading.local()
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https", "unix"):
            raise ValueError(f"{url!r} is no address of a service: http://HOST:PORT or unix:/PATH is")

    def _connect(self, timeout):
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme == "unix":
            return _Unix(parts.path, timeout)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, timeout=None):
        """(status, headers, bytes). Problems raise; 304 and 202 do not. A connection that the service closed in silence is made anew."""
        headers = dict(headers or {})
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        for attempt in (0, 1):
            connection = getattr(self.local, "connection", None)
            fresh = connection is None
            if fresh:
                connection = self.local.connection = self._connect(timeout or self.timeout)
            elif connection.sock:
                connection.sock.settimeout(timeout or self.timeout)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                self.local.connection = None
                timed_out = isinstance(e, (socket.timeout, TimeoutError))
                if fresh or attempt or timed_out:
                    raise Unavailable(f"no answer from {self.url}: {e or type(e).__name__}") from e
        if answer.status >= 400:
            try:
                problem = json.loads(data)
            except ValueError:
                problem = {"title": f"status {answer.status}", "detail": data[:200].decode(errors="replace")}
            raise ServiceError(answer.status, problem if isinstance(problem, dict) else {})
        return answer.status, answer.headers, data

    def close(self):
        connection = getattr(self.local, "connection", None)
        if connection is not None:
            connection.close()
            self.local.connection = None
