"""Errors in the form that the clients of a path know: OpenAI's, or Anthropic's for its messages."""

import msgspec

from pando_router.errors import ApiError, error_answer, stream_error

_MESSAGES = "/v1/messages"

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


def error_of(
    path: str, error: ApiError, request_id: str
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers without `content-length`, and body."""
    status, headers, body = error_answer(error, request_id)
    if path.startswith(_MESSAGES):
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
