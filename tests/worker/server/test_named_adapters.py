"""Names of adapters, on an engine whose loads end when a test says so."""

import asyncio
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast

import pytest

from pando_worker.messages import AdapterLoaded
from pando_worker.server.adapters import UNLOADED, NamedAdapters
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import ApiError
from tests.waiting import PATIENCE_S, until_async


@dataclass
class Engine:
    """Counts loads and pins by identity. A path's load ends once the test allows it."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    loads: dict[bytes, int] = field(default_factory=dict)
    pinned: set[bytes] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    allowed: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def load_adapter(self, path: str) -> AdapterLoaded:
        self.asked.append(path)
        await self.allowed.acquire()
        if path in self.broken:
            raise ApiError(400, "broken")
        identity = identity_of(path)
        self.loads[identity] = self.loads.get(identity, 0) + 1
        return AdapterLoaded(call=0, identity=identity, rank=8)

    async def pin_adapter(self, identity: bytes, *, is_pinned: bool) -> None:
        assert identity in self.loads, "the scheduler does not know it"
        if is_pinned:
            self.pinned.add(identity)
        else:
            self.pinned.discard(identity)

    async def unload_adapter(self, identity: bytes) -> None:
        self.loads[identity] -= 1
        if not self.loads[identity]:
            del self.loads[identity]


def identity_of(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=16).digest()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def adapters(engine: Engine) -> NamedAdapters:
    return NamedAdapters(cast(EngineClient, engine), "base", unload_seconds=PATIENCE_S)


async def load(adapters: NamedAdapters, engine: Engine, path: str, *, pin: bool = False) -> None:
    engine.allowed.release()
    await adapters.load("x", path, replaces=True, is_pinned=pin)


@pytest.mark.parametrize("pin", [False, True])
async def test_unloading_a_name_ends_the_load_that_gives_it_weights(
    engine: Engine, adapters: NamedAdapters, pin: bool
) -> None:
    loading = asyncio.create_task(adapters.load("x", "new", is_pinned=pin))
    await until_async(lambda: engine.asked == ["new"], "the engine loads")
    await adapters.unload("x")
    engine.allowed.release()
    with pytest.raises(ApiError, match="unloaded while it was being loaded") as refused:
        await loading
    assert (refused.value.status, refused.value.code) == (409, UNLOADED)
    assert not list(adapters)
    assert not engine.loads
    assert not engine.pinned


async def test_unloading_a_name_that_is_being_replaced_leaves_neither_weights(
    engine: Engine, adapters: NamedAdapters
) -> None:
    await load(adapters, engine, "old", pin=True)
    loading = asyncio.create_task(adapters.load("x", "new", replaces=True))
    await until_async(lambda: engine.asked == ["old", "new"], "the engine loads")
    await adapters.unload("x")
    assert not engine.loads
    engine.allowed.release()
    with pytest.raises(ApiError, match="unloaded while"):
        await loading
    assert not list(adapters)
    assert not engine.loads
    assert not engine.pinned


async def test_a_name_can_be_loaded_again_before_the_load_that_was_ended_has_ended(
    engine: Engine, adapters: NamedAdapters
) -> None:
    first = asyncio.create_task(adapters.load("x", "first"))
    await until_async(lambda: engine.asked == ["first"], "the engine loads")
    await adapters.unload("x")
    second = asyncio.create_task(adapters.load("x", "second"))
    await until_async(lambda: engine.asked == ["first", "second"], "the engine loads")
    with pytest.raises(ApiError, match="is being loaded already"):
        await adapters.load("x", "third")
    engine.allowed.release()
    engine.allowed.release()
    await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(first.exception(), ApiError)
    assert [(one.name, one.path) for one in adapters] == [("x", "second")]
    assert engine.loads == {identity_of("second"): 1}


async def test_a_replacement_that_fails_pins_nothing_that_was_unloaded_meanwhile(
    engine: Engine, adapters: NamedAdapters
) -> None:
    await load(adapters, engine, "old", pin=True)
    engine.broken.add("new")
    loading = asyncio.create_task(adapters.load("x", "new", replaces=True))
    await until_async(lambda: engine.asked == ["old", "new"], "the engine loads")
    await adapters.unload("x")
    engine.allowed.release()
    with pytest.raises(ApiError, match="broken"):
        await loading
    assert not engine.loads
    assert not engine.pinned
