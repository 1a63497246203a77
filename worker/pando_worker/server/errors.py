"""The worker's own errors, and how it sends them; what they are is in `pando_fleet.http.errors`.

Whoever finds something wrong raises `ApiError` (or one of the makers); the app turns it into an
answer, and a stream that has begun ends with its `body` as the last event.
"""

from starlette.responses import Response

from pando_fleet.http.errors import ApiError, bad_request, unavailable

__all__ = [
    "ApiError",
    "aborted",
    "bad_request",
    "deadline_passed",
    "error_response",
    "internal_error",
    "too_slow",
    "unavailable",
]


def deadline_passed(message: str) -> ApiError:
    """504: the request had a time limit, its own or the worker's."""
    return ApiError(504, message, kind="timeout_error", code="deadline_exceeded")


def too_slow(max_bytes: int) -> ApiError:
    """408: a client took its answer more slowly than it was made."""
    return ApiError(
        408,
        f"the client fell behind: more than {max_bytes} bytes of its answer waited to be read",
        kind="timeout_error",
        code="client_too_slow",
    )


def aborted() -> ApiError:
    """409: another request asked for its end, and it has no part of an answer to show."""
    return ApiError(409, "the request was aborted", code="aborted")


def internal_error() -> ApiError:
    """500 without the reason, which is in the log beside the request id."""
    return ApiError(500, "internal error; the worker's log says more", kind="server_error")


def error_response(error: ApiError) -> Response:
    return Response(error.body, error.status, error.headers, "application/json")
