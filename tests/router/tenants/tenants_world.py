"""Tenants for tests: a key file, and a router that reads it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from pando_router.api_keys.keyring import digest_of
from tests.router.world import Replica, RouterClient, serving

ADMIN = "sk-pando-admin"
PROMPT = "x" * 4096  # 16 chunks


def key_file(folder: Path, **tenants: dict[str, Any]) -> Path:
    """A key file where each tenant's name is its key, and `admin` has ADMIN."""
    file = folder / "keys.yaml"
    given: dict[str, Any] = {"admin": {"keys": [{"sha256": digest_of(ADMIN)}], "admin": True}}
    for name, fields in tenants.items():
        given[name] = {"keys": [{"sha256": digest_of(name)}], **fields}
    file.write_text(yaml.safe_dump({"tenants": given}))
    return file


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def guarded(
    redis_url: str, file: Path, *replicas: Replica, **settings: Any
) -> AsyncIterator[RouterClient]:
    async with serving(redis_url, key=ADMIN, api_keys=file, **settings) as router:
        await router.ready(*(replica.name for replica in replicas))
        yield router
