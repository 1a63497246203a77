"""Errors as clients see them: one exception, in OpenAI's JSON form."""

from functools import partial

import msgspec


class OpenAIDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(msgspec.Struct):
    """The body of an error."""

    error: OpenAIDetail


class ApiError(Exception):
    """A request that ends without a result: the HTTP status, and OpenAI's fields."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}

    def __reduce__(self) -> tuple[partial["ApiError"], tuple[int, str]]:
        named = partial(
            ApiError, kind=self.kind, param=self.param, code=self.code, headers=self.headers
        )
        return named, (self.status, self.message)

    @property
    def body(self) -> bytes:
        """OpenAI's JSON object."""
        detail = OpenAIDetail(self.message, self.kind, self.param, self.code)
        return msgspec.json.encode(OpenAIError(detail))


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str, *, retry_after: int = 1) -> ApiError:
    """A 503: the request is valid, and may succeed here after `retry_after` seconds, or at another
    replica."""
    return ApiError(
        503,
        message,
        kind="service_unavailable_error",
        code=code,
        headers={"retry-after": str(retry_after)},
    )


class ClientDisconnectedError(Exception):
    """The client disconnected before its answer was complete."""


def error_answer(
    error: ApiError, request_id: str | None = None
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers without `content-length`, and body."""
    headers = [(b"content-type", b"application/json")]
    if request_id is not None:
        headers.append((b"x-request-id", request_id.encode()))
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    return error.status, headers, error.body
