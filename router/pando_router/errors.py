"""How the router sends errors; `pando_fleet.http.errors` defines them."""

from pando_fleet.http.errors import ApiError, OpenAIError, bad_request, unavailable

__all__ = [
    "CLIENT_CLOSED_REQUEST",
    "ApiError",
    "ClientDisconnectedError",
    "OpenAIError",
    "bad_request",
    "error_answer",
    "unavailable",
]


CLIENT_CLOSED_REQUEST = 499  # nginx's status for a disconnected client; only in logs and metrics


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
