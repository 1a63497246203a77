"""Each API's error format, and the header that holds the request's id."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pando_router.errors import ApiError, OpenAIError, error_answer
from pando_router.http.headers import Headers


@dataclass(frozen=True, slots=True)
class ErrorForm:
    schema: type[msgspec.Struct]
    # From an error and the request's id: status, headers without `content-length`, and body.
    answer: Callable[[ApiError, str], tuple[int, Headers, bytes]]
    # From a message and that id: the event that ends a stream whose replica died. Its leading blank
    # line ends an event that was cut in the middle.
    stream_event: Callable[[str, str], bytes]
    # Adds the API's own header with the request's id to a replica's headers.
    named: Callable[[Headers, bytes], Headers]


class AnthropicDetail(msgspec.Struct):
    type: str
    message: str


class AnthropicError(msgspec.Struct, tag_field="type", tag="error"):
    error: AnthropicDetail
    request_id: str


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
_ANTHROPIC_ID = b"request-id"


def _anthropic_answer(error: ApiError, request_id: str) -> tuple[int, Headers, bytes]:
    status, headers, _ = error_answer(error, request_id)
    headers.append((_ANTHROPIC_ID, request_id.encode()))
    return status, headers, _anthropic_body(status, error.message, request_id)


def _anthropic_event(message: str, request_id: str) -> bytes:
    return b"\n\nevent: error\ndata: " + _anthropic_body(500, message, request_id) + b"\n\n"


def _anthropic_named(headers: Headers, request_id: bytes) -> Headers:
    others = [header for header in headers if header[0] != _ANTHROPIC_ID]
    return [*others, (_ANTHROPIC_ID, request_id)]


def _anthropic_body(status: int, message: str, request_id: str) -> bytes:
    kind = _ANTHROPIC_TYPES.get(status)
    if kind is None:
        kind = "api_error" if status >= 500 else "invalid_request_error"
    return msgspec.json.encode(AnthropicError(AnthropicDetail(kind, message), request_id))


def _openai_event(message: str, request_id: str) -> bytes:
    lost = ApiError(502, message, kind="upstream_error", code="replica_lost")
    return b"\n\ndata: " + lost.body + b"\n\n"


OPENAI = ErrorForm(OpenAIError, error_answer, _openai_event, lambda headers, _: headers)
ANTHROPIC = ErrorForm(AnthropicError, _anthropic_answer, _anthropic_event, _anthropic_named)
