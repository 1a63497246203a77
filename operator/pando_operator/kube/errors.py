"""Failures of API server calls: one exception type for each kind of reaction.

Answers are translated once, here. Every type is a `KubeError`. Its message is the API server's own,
which names what it refused: the field, the missing permission, the newer version.
"""

import json


class KubeError(Exception):
    """A call failed. Raised itself, not as a subclass, for a bad request."""


class NotFound(KubeError):  # noqa: N818  (states of the world, not mistakes)
    """The object does not exist, or the cluster does not know its kind."""


class Conflict(KubeError):  # noqa: N818
    """Somebody else wrote first, or the object already exists: read again, then decide again."""


class FieldConflict(Conflict):
    """An apply without force would change fields of other managers; the message names them."""


class Gone(KubeError):  # noqa: N818
    """The server no longer keeps the version that a watch or list continues from: list again."""


class Forbidden(KubeError):  # noqa: N818
    """The operator may not do this; the message names verb, resource and scope."""


class Invalid(KubeError):  # noqa: N818
    """The object breaks its schema or rules; the message names the field."""


class Unavailable(KubeError):  # noqa: N818
    """The API server is unreachable, overloaded or failing: try again."""


_BY_STATUS: dict[int, type[KubeError]] = {
    400: Invalid,  # from admission webhooks that set no code
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
}


def error_of(status: int, body: bytes | str, doing: str) -> KubeError:
    """The exception for an answer of `status`; `doing` names the call, such as "get pods/a"."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if kind is Conflict and b"FieldManagerConflict" in (
        body.encode() if isinstance(body, str) else body
    ):
        kind = FieldConflict
    return kind(f"{doing}: {_message(body) or 'no reason given'} ({status})")


def _message(body: bytes | str) -> str:
    """The message of a Status object; of anything else, such as a proxy's answer, its beginning."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return " ".join(text[:200].split())
