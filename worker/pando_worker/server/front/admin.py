"""The endpoints that change a worker for all of its clients, and the token that they want.

A worker of a fleet makes a token at its start and has it in its heartbeats. So routers and the
operator, which read them in Redis, can use these endpoints, and clients that only reach the
worker's port cannot.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from secrets import compare_digest, token_urlsafe

from pando_fleet.http.api_key import key_in
from pando_fleet.http.server.headers import Headers
from pando_worker.server.errors import ApiError
from pando_worker.settings import WorkerSettings

PATHS = frozenset(
    ["/abort_request", "/flush_cache", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"]
)

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Admin:
    token: str  # empty: these endpoints want none

    @classmethod
    def of(cls, settings: WorkerSettings) -> "Admin":
        """With the token of the settings, otherwise a random one; with none if only this machine
        reaches the worker."""
        if settings.admin_token is not None:
            return cls(settings.admin_token.get_secret_value())
        return cls("" if _is_loopback(settings.host) else token_urlsafe(_TOKEN_BYTES))

    def check(self, path: str, headers: Headers) -> None:
        """Raises ApiError 401 if the path wants a token that the headers do not have."""
        if not self.token or path not in PATHS:
            return
        if not compare_digest(key_in(headers), self.token.encode()):
            raise ApiError(
                401,
                f"{path} requires this worker's admin_token, as Authorization: Bearer TOKEN",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
