"""The request line's target, taken apart."""

from urllib.parse import unquote, urlsplit

from pando_router.errors import bad_request


def split(target: bytes) -> tuple[bytes, str, bytes]:
    """Path and query as they came, the path decoded, and the query.

    Of an absolute target, as clients send it to a proxy (RFC 9112, 3.2.2), host and scheme are
    left out. Raises ApiError 400.
    """
    if target[:1] != b"/" and target != b"*":
        target = _origin_form(target)
    if b"#" in target:
        target = target.partition(b"#")[0]
    raw_path, _, query = target.partition(b"?")
    path = raw_path.decode("ascii")
    return target, unquote(path) if "%" in path else path, query


def _origin_form(target: bytes) -> bytes:
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise bad_request(f"the request target cannot be read: {error}") from error
    if parts.scheme not in (b"http", b"https"):
        raise bad_request("the request target is neither a path nor an http URL")
    return (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
