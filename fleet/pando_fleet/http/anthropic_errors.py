"""Errors in the form of Anthropic's API."""

import msgspec

from pando_fleet.http.errors import ApiError, error_answer
from pando_fleet.http.server.headers import Headers


class AnthropicDetail(msgspec.Struct):
    type: str
    message: str


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    """The body of an error, and the event that ends a stream which failed."""

    error: AnthropicDetail
    request_id: str


REQUEST_ID = b"request-id"
"""Anthropic's header with the request's id."""

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(status: int, message: str, request_id: str) -> AnthropicError:
    kind = _TYPES.get(status)
    if kind is None:
        kind = "api_error" if status >= 500 else "invalid_request_error"
    return AnthropicError(AnthropicDetail(kind, message), request_id)


def anthropic_body(status: int, message: str, request_id: str) -> bytes:
    return msgspec.json.encode(anthropic_error(status, message, request_id))


def anthropic_answer(error: ApiError, request_id: str) -> tuple[int, Headers, bytes]:
    """Status, headers without `content-length`, and body."""
    status, headers, _ = error_answer(error, request_id)
    headers.append((REQUEST_ID, request_id.encode()))
    return status, headers, anthropic_body(status, error.message, request_id)
