"""Errors as clients see them: one exception, OpenAI's JSON form, and how it is sent."""

import msgspec


class OpenAIDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(msgspec.Struct):
    """The body of an error's answer."""

    error: OpenAIDetail


class ApiError(Exception):
    """A request that ends without a replica's answer; `status` is HTTP's, the rest OpenAI's."""

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

    @property
    def body(self) -> bytes:
        """OpenAI's JSON form."""
        detail = OpenAIDetail(self.message, self.kind, self.param, self.code)
        return msgspec.json.encode(OpenAIError(detail))


class ClientDisconnectedError(Exception):
    """The client went away before its answer was complete."""


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, message, param=param)


def unavailable(message: str, code: str, *, retry_after: int = 1) -> ApiError:
    """503: nothing is wrong with the request, `retry_after` seconds later it may succeed."""
    return ApiError(
        503,
        message,
        kind="service_unavailable_error",
        code=code,
        headers={"retry-after": str(retry_after)},
    )


def error_answer(
    error: ApiError, request_id: str | None = None
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers without `content-length`, and body."""
    headers = [(b"content-type", b"application/json")]
    if request_id is not None:
        headers.append((b"x-request-id", request_id.encode()))
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    return error.status, headers, error.body
