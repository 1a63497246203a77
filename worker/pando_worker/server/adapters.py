"""`NamedAdapters`: the LoRA adapters of this worker by name, loaded, replaced and unloaded.

A request uses the adapter that its name had when it came, until it ends: replacing an adapter gives
the name to other weights for later requests, and the earlier weights leave once the last request
that uses them has ended. Unloading a name also ends the load that is giving it weights. The
scheduler knows adapters by the hash of their weights only.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Any

from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import ApiError, bad_request
from pando_worker.server.metrics import AdaptersInUse

log = logging.getLogger("pando.worker")

MAX_ADAPTERS = 1024
LEAST_UNLOAD_S = 5.0  # even an adapter that nothing uses takes a step of the scheduler
MAX_NAME = 200
UNLOADED = "adapter_unloaded"
"""The code of the error of a load whose name was unloaded meanwhile."""

_SHOWN = 20  # names in an error's message


@dataclass(slots=True, eq=False, kw_only=True)
class NamedAdapter:
    name: str
    path: str
    identity: bytes
    rank: int
    is_pinned: bool = False
    created: int = field(default_factory=lambda: int(time()))  # Unix time
    requests: int = 0  # that use it
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps it loaded while the block runs."""
        self.requests += 1
        self.unused.clear()
        try:
            yield
        finally:
            self.requests -= 1
            if not self.requests:
                self.unused.set()

    async def wait_unused(self) -> None:
        if self.requests:
            await self.unused.wait()


@dataclass(slots=True, eq=False)
class _Loading:
    """A load that has not ended."""

    is_wanted: bool = True  # False: its name was unloaded meanwhile


class NamedAdapters:
    """
    Attributes:
        are_preloaded: whether all adapters of the settings have been loaded
        unload_seconds: how long `unload` waits for the requests that use an adapter
    """

    def __init__(self, engine: EngineClient, model: str, *, unload_seconds: float) -> None:
        """
        Args:
            model: the name of the base model, which no adapter may have
        """
        self.unload_seconds = max(unload_seconds, LEAST_UNLOAD_S)
        self.are_preloaded = False
        self._engine = engine
        self._model = model
        self._adapters: dict[str, NamedAdapter] = {}
        self._loading: dict[str, _Loading] = {}  # by name
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[NamedAdapter]:
        return iter(self._adapters.values())

    def __len__(self) -> int:
        return len(self._adapters)

    def get(self, name: str) -> NamedAdapter | None:
        return self._adapters.get(name)

    def in_use(self) -> AdaptersInUse:
        """As far as the scheduler has said."""
        there = frozenset(self._engine.adapter_places.device)
        used = [adapter for adapter in self if adapter.requests]
        return AdaptersInUse(
            running=tuple(adapter.name for adapter in used if adapter.identity in there),
            waiting=tuple(adapter.name for adapter in used if adapter.identity not in there),
        )

    def listed(self) -> str:
        """Their names, for an error's message."""
        if not self._adapters:
            return "none"
        names = [repr(name) for name in sorted(self._adapters)]
        rest = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        return ", ".join(names[:_SHOWN] + rest)

    async def load(
        self, name: str, path: str, *, replaces: bool = False, is_pinned: bool | None = None
    ) -> NamedAdapter:
        """Check an adapter's files and give it a name. It goes on if the caller is cancelled.

        Args:
            replaces: whether the name may have another adapter, which this one replaces
            is_pinned: whether it stays in device memory; None: if what it replaces did

        Raises:
            ApiError: 400 for files that are broken or do not fit the model, and for a name that is
                taken; 409 if the name is being loaded, if it is unloaded before that ends, or if
                there is no room.
        """
        self._check_name(name, replaces=replaces)
        loading = self._loading[name] = _Loading()
        loaded: list[NamedAdapter] = []

        async def run() -> None:
            try:
                loaded.append(await self._load(name, path, loading, is_pinned=is_pinned))
            finally:
                if self._loading.get(name) is loading:
                    del self._loading[name]

        await self._to_its_end(run())
        return loaded[0]

    async def unload(self, name: str) -> None:
        """Take an adapter's name from it, and forget it once no request uses it. A load that is
        giving the name weights fails.

        Raises:
            ApiError: 404 for an unknown name; 409 if requests still use it after `unload_seconds`:
                it is forgotten later.
        """
        adapter = self._adapters.pop(name, None)
        loading = self._loading.pop(name, None)
        if loading is not None:
            loading.is_wanted = False
        if adapter is None:
            if loading is not None:
                return
            raise ApiError(
                404,
                f"there is no adapter {name[:MAX_NAME]!r}; this worker has {self.listed()}",
                param="lora_name",
                code="adapter_not_found",
            )
        self._engine.changed.set()
        try:
            async with asyncio.timeout(self.unload_seconds):
                await self._to_its_end(self._forget(adapter))
        except TimeoutError:
            raise ApiError(
                409,
                f"{adapter.requests} requests still use adapter {name!r} after"
                f" {self.unload_seconds:g} s. No further ones are accepted, and it is unloaded when"
                " they have ended",
                code="adapter_in_use",
            ) from None

    def _check_name(self, name: str, *, replaces: bool) -> None:
        param = "lora_name"
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise bad_request(f"lora_name must have 1 to {MAX_NAME} printable characters", param)
        if name == self._model:
            raise bad_request(f"lora_name {name!r} is the name of the base model", param)
        if name in self._loading:
            raise ApiError(409, f"adapter {name!r} is being loaded already", param=param)
        if name in self._adapters and not replaces:
            raise bad_request(
                f"adapter {name!r} has already been loaded; load_inplace: true replaces it", param
            )
        if (
            len(self._adapters.keys() | self._loading.keys()) >= MAX_ADAPTERS
            and name not in self._adapters
        ):
            raise ApiError(409, f"this worker has {MAX_ADAPTERS} adapters; unload one first")

    async def _load(
        self, name: str, path: str, loading: _Loading, *, is_pinned: bool | None
    ) -> NamedAdapter:
        before = self._adapters.get(name)
        replaces_pin = before is not None and before.is_pinned
        if before is not None and before.is_pinned:
            await self._unpin(before)  # its place may be needed
        try:
            found = await self._engine.load_adapter(path)
        except ApiError:
            if replaces_pin and before is not None and self._adapters.get(name) is before:
                await self._pin(before)
            raise
        adapter = NamedAdapter(name=name, path=path, identity=found.identity, rank=found.rank)
        is_late = False
        if replaces_pin if is_pinned is None else is_pinned:
            try:
                await self._pin(adapter)
            except ApiError:
                if not replaces_pin:
                    await self._engine.unload_adapter(found.identity)
                    raise
                is_late = True
        if not loading.is_wanted:
            await self._forget(adapter)
            message = f"adapter {name!r} was unloaded while it was being loaded"
            raise ApiError(409, message, code=UNLOADED)
        before = self._adapters.get(name)
        self._adapters[name] = adapter
        if before is not None:
            self._in_background(self._replace(before, adapter if is_late else None))
        self._engine.changed.set()
        return adapter

    async def _replace(self, before: NamedAdapter, pinned: NamedAdapter | None) -> None:
        """Forget what an adapter has replaced, which leaves the room that it needs to be pinned."""
        await self._forget(before)
        if pinned is not None and self._adapters.get(pinned.name) is pinned:
            try:
                await self._pin(pinned)
            except ApiError as error:
                log.warning("adapter %r is not pinned any more: %s", pinned.name, error.message)

    async def _forget(self, adapter: NamedAdapter) -> None:
        """Forget an adapter whose name is gone or has another one, once no request uses it."""
        await self._unpin(adapter)
        await adapter.wait_unused()
        await self._engine.unload_adapter(adapter.identity)

    async def _pin(self, adapter: NamedAdapter) -> None:
        """Raises ApiError if there is no room."""
        await self._engine.pin_adapter(adapter.identity, is_pinned=True)
        adapter.is_pinned = True
        self._engine.changed.set()

    async def _unpin(self, adapter: NamedAdapter) -> None:
        """Another name of the same adapter may keep it pinned."""
        was_pinned, adapter.is_pinned = adapter.is_pinned, False
        shares = (each for each in self if each.identity == adapter.identity)
        if was_pinned and not any(each.is_pinned for each in shares):
            await self._engine.pin_adapter(adapter.identity, is_pinned=False)

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(self._in_background(work))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has it, unless it is gone
