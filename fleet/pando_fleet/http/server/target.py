"""Parses the request line's target."""

from urllib.parse import unquote, urlsplit

from pando_fleet.http.errors import bad_request


def split(target: bytes) -> tuple[bytes, str, bytes]:
    """Returns path and query as sent, the decoded path, and the query.

    Drops scheme and host of an absolute target, as clients send it to a proxy (RFC 9112, 3.2.2).
    Raises ApiError 400.
    """
    if target[:1] != b"/" and target != b"*":
        target = _origin_form(target)
    target = target.partition(b"#")[0]
    raw_path, _, query = target.partition(b"?")
    path = raw_path.decode("ascii")
    return target, unquote(path) if "%" in path else path, query


def _origin_form(target: bytes) -> bytes:
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise bad_request(f"the request target is not valid: {error}") from error
    if parts.scheme not in (b"http", b"https"):
        raise bad_request("the request target is neither a path nor an http URL")
    return (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
