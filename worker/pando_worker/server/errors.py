"""The worker's own API errors, and how they are sent; `pando_fleet.http.errors` has the type.

Any code may raise an `ApiError`, made by hand or by a function here. The app turns it into an
answer; a stream that has begun ends with its `body` as the last event.
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
    """504: the request exceeded its own time limit or the worker's."""
    return ApiError(504, message, kind="timeout_error", code="deadline_exceeded")


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


def error_response(error: ApiError) -> Response:
    return Response(error.body, error.status, error.headers, "application/json")
