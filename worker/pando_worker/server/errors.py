"""The worker's own API errors, and how they are sent; `pando_fleet.http.errors` has the type.

Any code may raise an `ApiError`, made by hand or by a function here. The app turns it into an
answer; a stream that has begun ends with its `body` as the last event.
"""

from typing import Any

from starlette.responses import Response
from starlette.types import Scope

from pando_fleet.http.anthropic_errors import anthropic_answer
from pando_fleet.http.errors import ApiError, bad_request, error_answer, unavailable

__all__ = [
    "ANTHROPIC_PATH",
    "TOO_LONG",
    "ApiError",
    "aborted",
    "bad_request",
    "deadline_passed",
    "error_in_form",
    "error_response",
    "internal_error",
    "shown",
    "too_long",
    "too_slow",
    "unavailable",
    "wrong_value",
]

TOO_LONG = "context_length_exceeded"
"""Code of the error `too_long`."""

ANTHROPIC_PATH = "/v1/messages"
"""Beginning of the paths of Anthropic's API, which has a form of error of its own."""

_KINDS = {dict: "an object", list: "a list", str: "a string"}


def wrong_value(param: str, wanted: str, value: Any) -> ApiError:
    """400: what a field must be, and what it is."""
    return bad_request(f"{param} must be {wanted}, not {shown(value)}", param)


def shown(value: Any) -> str:
    """Numbers and words; of a prompt or a structure, only its kind."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)[:60]
    if isinstance(value, str) and len(value) <= 40:
        return repr(value)
    return next((noun for kind, noun in _KINDS.items() if isinstance(value, kind)), "this")


def deadline_passed(message: str) -> ApiError:
    """504: the request exceeded its own time limit or the worker's."""
    return ApiError(504, message, kind="timeout_error", code="deadline_exceeded")


def too_long(message: str, param: str) -> ApiError:
    """400: the prompt, or it and the output, have more tokens than the model's context."""
    return bad_request(message, param, TOO_LONG)


def too_slow(max_bytes: int) -> ApiError:
    """408: a client read its answer more slowly than it was generated."""
    return ApiError(
        408,
        f"the client fell behind: more than {max_bytes} bytes of its answer were unread",
        kind="timeout_error",
        code="client_too_slow",
    )


def aborted() -> ApiError:
    """409: another request aborted this one, which has no partial answer to return."""
    return ApiError(409, "the request was aborted", code="aborted")


def internal_error() -> ApiError:
    """500 without the reason, which the log has under the request id."""
    return ApiError(500, "internal error; see the worker's log", kind="server_error")


def error_in_form(
    error: ApiError, path: str, request_id: str
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers without `content-length`, and body, as the API of the path has errors."""
    answer = anthropic_answer if path.startswith(ANTHROPIC_PATH) else error_answer
    return answer(error, request_id)


def error_response(error: ApiError, scope: Scope) -> Response:
    request_id = scope["state"]["request_id"]
    status, headers, body = error_in_form(error, scope["path"], request_id)
    own = {name.decode(): value.decode() for name, value in headers if name != b"x-request-id"}
    return Response(body, status, own)
