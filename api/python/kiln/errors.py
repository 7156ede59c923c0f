"""What can go wrong, as exceptions."""


class Error(Exception):
    """Of everything below."""


class Unavailable(Error):
    """No answer from the service, and nothing cached that would do."""


class ServiceError(Error):
    """A problem (RFC 9457) that the service answered with."""

    def __init__(self, status, problem):
        self.status, self.problem = status, problem
        self.type = problem.get("type", "")
        parts = [problem.get("title") or f"status {status}"]
        if problem.get("detail"):
            parts.append(f"{problem.get('pointer') or ''} {problem['detail']}".strip())
        if problem.get("hint"):
            parts.append(problem["hint"])
        super().__init__(": ".join(parts))


class DigestError(Error):
    """Bytes that are not those that were promised. They were not loaded."""


class Unsupported(Error):
    """A kernel or an argument that this process cannot use."""


class Fallback(UserWarning):
    """A model, a part of it, or what is behind it, runs elsewhere."""
