"""What clients of a path know: errors of OpenAI's form, or Anthropic's for its messages, and the
name that their library reads of a request."""

import msgspec

from pando_router.errors import ApiError, error_answer, stream_error
from pando_router.http.headers import Headers

_MESSAGES = "/v1/messages"

_REQUEST_ID = b"request-id"

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def named(path: str, headers: Headers, request_id: bytes) -> Headers:
    """A replica's headers, with the request's name for whoever reads Anthropic's header."""
    if not path.startswith(_MESSAGES):
        return headers
    others = [header for header in headers if header[0] != _REQUEST_ID]
    return [*others, (_REQUEST_ID, request_id)]


def error_of(
    path: str, error: ApiError, request_id: str
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers without `content-length`, and body."""
    status, headers, body = error_answer(error, request_id)
    if path.startswith(_MESSAGES):
        headers.append((_REQUEST_ID, request_id.encode()))
        body = msgspec.json.encode(_anthropic(status, error.message, request_id))
    return status, headers, body


def stream_error_of(path: str, message: str, request_id: str) -> bytes:
    """The event that ends a server-sent stream whose replica died."""
    if not path.startswith(_MESSAGES):
        return stream_error(message)
    # The blank line in front ends an event that was cut in the middle.
    body = msgspec.json.encode(_anthropic(500, message, request_id))
    return b"\n\nevent: error\ndata: " + body + b"\n\n"


def _anthropic(status: int, message: str, request_id: str) -> dict[str, object]:
    kind = _ANTHROPIC_TYPES.get(status)
    if kind is None:
        kind = "api_error" if status >= 500 else "invalid_request_error"
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }
