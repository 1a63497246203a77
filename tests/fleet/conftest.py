"""The world of the fleet tests, on each kind of server."""

from collections.abc import AsyncIterator

import pytest

from pando_fleet.registry import registry
from tests.fleet.world import World


@pytest.fixture
async def world(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(registry, "FORGET_S", 10.0)  # a busy machine is late, not away
    async with World.open(redis_url) as world:
        yield world
