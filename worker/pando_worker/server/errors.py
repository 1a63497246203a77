"""Errors as clients see them: one exception, in OpenAI's JSON form.

Whoever finds something wrong raises `ApiError` (or one of the makers below); the app turns it into
an answer, and a stream that has begun ends with `error_body` as its last event.
"""

import msgspec
from starlette.responses import Response


class ApiError(Exception):
    """A request that ends without a result; `status` is HTTP's, the rest is OpenAI's."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after = retry_after  # seconds


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str) -> ApiError:
    """503: nothing is wrong with the request; here or on another replica it may succeed soon."""
    return ApiError(503, message, kind="service_unavailable_error", code=code, retry_after=1)


def deadline_passed(message: str) -> ApiError:
    """504: the request had a time limit, its own or the worker's."""
    return ApiError(504, message, kind="timeout_error", code="deadline_exceeded")


def aborted() -> ApiError:
    """409: another request asked for its end, and it has no part of an answer to show."""
    return ApiError(409, "the request was aborted", code="aborted")


def internal_error() -> ApiError:
    """500 without the reason, which is in the log beside the request id."""
    return ApiError(500, "internal error; the worker's log says more", kind="server_error")


def error_body(error: ApiError) -> bytes:
    """The error as OpenAI's JSON object."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def error_response(error: ApiError) -> Response:
    response = Response(error_body(error), error.status, media_type="application/json")
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response
