"""Errors as clients see them: one exception, OpenAI's JSON form, and how it is sent."""

from typing import Any

import msgspec


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
    def body(self) -> dict[str, Any]:
        return error_body(self.message, self.kind, self.param, self.code)


class ClientDisconnectedError(Exception):
    """The client went away before its answer was complete."""


def error_body(
    message: str, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


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


def stream_error(message: str) -> bytes:
    """The event that ends a server-sent stream whose replica died.

    The blank line in front ends an event that was cut in the middle.
    """
    body = error_body(message, "upstream_error", code="replica_lost")
    return b"\n\ndata: " + msgspec.json.encode(body) + b"\n\n"


def error_answer(
    error: ApiError, request_id: str | None = None
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers without `content-length`, and body."""
    headers = [(b"content-type", b"application/json")]
    if request_id is not None:
        headers.append((b"x-request-id", request_id.encode()))
    headers += [(name.encode(), value.encode()) for name, value in error.headers.items()]
    return error.status, headers, msgspec.json.encode(error.body)
