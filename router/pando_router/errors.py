"""The router's errors; `pando_fleet.http.errors` defines them, and how they are sent."""

from pando_fleet.http.errors import (
    ApiError,
    ClientDisconnectedError,
    OpenAIError,
    bad_request,
    error_answer,
    unavailable,
)

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
