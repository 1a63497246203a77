"""Each API's error format, and the header that holds the request's id."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pando_fleet.http.anthropic_errors import (
    REQUEST_ID,
    AnthropicError,
    anthropic_answer,
    anthropic_body,
)
from pando_fleet.http.server.headers import Headers
from pando_router.errors import ApiError, OpenAIError, error_answer


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


def _anthropic_event(message: str, request_id: str) -> bytes:
    return b"\n\nevent: error\ndata: " + anthropic_body(500, message, request_id) + b"\n\n"


def _anthropic_named(headers: Headers, request_id: bytes) -> Headers:
    others = [header for header in headers if header[0] != REQUEST_ID]
    return [*others, (REQUEST_ID, request_id)]


def _openai_event(message: str, request_id: str) -> bytes:
    lost = ApiError(502, message, kind="upstream_error", code="replica_lost")
    return b"\n\ndata: " + lost.body + b"\n\n"


OPENAI = ErrorForm(OpenAIError, error_answer, _openai_event, lambda headers, _: headers)
ANTHROPIC = ErrorForm(AnthropicError, anthropic_answer, _anthropic_event, _anthropic_named)
