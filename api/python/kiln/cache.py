"""The local cache: answers by request, blobs by SHA-256. What is read is checked; a file that does not match its name is removed."""
import hashlib
import json
import os
import tempfile

from .errors import DigestError


def default_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("KILN_CACHE") or os.path.join(base, "kiln")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Cache:
    def __init__(self, folder=None):
        self.folder = folder or default_folder()

    def _path(self, kind, name):
        return os.path.join(self.folder, kind, name[:2], name)

    def _read(self, path):
        try:
            with open(path, "rb") as f:
                return f.read()
        except OSError:
            return None

    def _write(self, path, data):
        """Whole or not at all; a cache that cannot be written to is no error."""
        temporary = None
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
            with os.fdopen(fd, "wb") as f:
                f.write(data)
            os.replace(temporary, path)
        except OSError:
            if temporary:
                try:
                    os.unlink(temporary)
                except OSError:
                    pass

    def blob(self, digest):
        """The bytes, or None."""
        path = self._path("blobs", digest)
        data = self._read(path)
        if data is not None and sha256(data) != digest:
            try:
                os.unlink(path)
            except OSError:
                pass
            return None
        return data

    def put_blob(self, digest, data):
        if sha256(data) != digest:
            raise DigestError(f"got bytes with SHA-256 {sha256(data)} where {digest} was promised")
        self._write(self._path("blobs", digest), data)

    def answer(self, request):
        """(etag, answer) of the request with this digest, or (None, None)."""
        data = self._read(self._path("answers", request))
        try:
            kept = json.loads(data) if data else {}
            return kept["etag"], kept["answer"]
        except (ValueError, KeyError, TypeError):
            return None, None

    def put_answer(self, request, etag, answer):
        self._write(self._path("answers", request), json.dumps({"etag": etag, "answer": answer}).encode())
