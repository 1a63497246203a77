"""Finds the tenant of a request by its API key; reads the keys again when their file changes."""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from time import time

from pydantic import SecretStr

from pando_fleet.http.api_key import key_in
from pando_router.api_keys.key_file import KeyFileError, read_keys, stamp
from pando_router.api_keys.keyring import Keyring
from pando_router.api_keys.tenant import ADMIN, OPEN, Tenant
from pando_router.errors import ApiError
from pando_router.telemetry.tenant_metrics import TenantMetrics

LOOK_S = 1.0  # between checks of the key file

Headers = Iterable[tuple[bytes, bytes]]

logger = logging.getLogger("pando.router")


class Tenants:
    """Raises KeyFileError if there is a key file and it is invalid."""

    def __init__(
        self, path: Path | None, metrics: TenantMetrics, admin_key: SecretStr | None = None
    ) -> None:
        self._path = path
        self._admin_key = admin_key
        self._metrics = metrics
        self._stamp: object = None
        self._problem = ""
        self._keyring: Keyring | None = None
        if path is not None:
            self._stamp = stamp(path)
            self._keyring = self._read(path)
            metrics.keys_valid.set(1)

    def of(self, headers: Headers) -> Tenant:
        """The tenant of a request; header names are in lower case. Raises ApiError 401."""
        if self._keyring is None:
            return OPEN
        key = key_in(headers)
        if not key:
            raise self._refusal("missing", "no API key; send it as Authorization: Bearer KEY")
        entry = self._keyring.find(key)
        if entry is None:
            raise self._refusal("unknown", "this API key is unknown")
        if entry.expires is not None and entry.expires <= time():
            raise self._refusal("expired", "this API key has expired")
        return entry.tenant

    async def watch(self) -> None:
        """Reads the keys again when their file has changed, until cancelled. If the new file is
        invalid, the old keys stay in effect."""
        while self._path is not None:
            await asyncio.sleep(LOOK_S)
            self.look(self._path)

    def look(self, path: Path) -> None:
        try:
            found = stamp(path)
            if found == self._stamp:
                return
            keyring = self._read(path)
        except KeyFileError as error:
            self._broken(str(error))
            return
        self._stamp, self._problem = found, ""
        self._adopt(keyring)

    def _read(self, path: Path) -> Keyring:
        keyring = read_keys(path)
        if self._admin_key is None:
            return keyring
        return keyring.with_key(self._admin_key.get_secret_value(), ADMIN)

    def _adopt(self, keyring: Keyring) -> None:
        gone = self._keyring.tenants.keys() - keyring.tenants.keys() if self._keyring else ()
        self._keyring = keyring
        self._metrics.keys_valid.set(1)
        for tenant in gone:
            self._metrics.forget(tenant)
        logger.info(
            "API keys read",
            extra={"keys": len(keyring.entries), "tenants": len(keyring.tenants)},
        )

    def _broken(self, problem: str) -> None:
        self._metrics.keys_valid.set(0)
        if problem != self._problem:  # checked each second, but logged once
            self._problem = problem
            logger.error("the old API keys stay in effect", extra={"error": problem})

    def _refusal(self, reason: str, message: str) -> ApiError:
        self._metrics.refused_keys.labels(reason).inc()
        return ApiError(
            401,
            message,
            code=None if reason == "missing" else "invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
