"""The fleet tests' world, once on each kind of server."""

from collections.abc import AsyncIterator

import pytest

from tests.fleet.world import World


@pytest.fixture
async def world(redis_url: str) -> AsyncIterator[World]:
    async with World.open(redis_url) as world:
        yield world
