"""Keeps the objects of a kind in memory: one list, then a watch.

A watch that breaks continues where it was, after a backoff. If the server no longer keeps that
version (410), the objects are listed again. `silent_s` is the time since the server was last heard
from: above `STALE_S` the objects may be old, and callers must not act on them. A watch that the
server refuses is tried again, and whoever waits for the first list need not wait for that one.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from math import inf

from pando_operator.kube.backoff import Backoff
from pando_operator.kube.client import SILENCE_S, Kube
from pando_operator.kube.errors import Forbidden, Gone, KubeError
from pando_operator.kube.resources import Key, Object, Resource, key_of, version_of

STALE_S = SILENCE_S + 20.0
"""A living watch is renewed within SILENCE_S; bookmarks come about once a minute."""

SHORT_S = 1.0  # a watch that ends sooner, without any event, counts as failed

log = logging.getLogger("pando.operator.kube")

OnChange = Callable[[Object | None, Object | None], None]
"""Called with an object's old and new state; None before it existed and after its deletion."""


class Watched:
    """The objects of one kind in one namespace ("" for all) that match both selectors: of labels
    and of fields."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        *,
        on_change: OnChange,
        on_restart: Callable[[str], None] = lambda reason: None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()  # listed at least once
        self.settled = asyncio.Event()  # that, or refused
        self.error = ""  # why the watch fails now; empty while it works
        self.refusal = ""  # the same, if the operator lacks the permission
        self._kube, self._resource = kube, resource
        self.namespace, self._selector, self._fields = namespace, selector, fields
        self._on_change, self._on_restart = on_change, on_restart
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._version: str | None = None  # to watch from; None: list first
        self._heard = clock()

    @property
    def silent_s(self) -> float:
        """Seconds since the API server last confirmed that these objects are current."""
        return self._clock() - self._heard if self.synced.is_set() else inf

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            reason = ""
            try:
                if self._version is None:
                    await self._list()
                started = self._clock()
                if not await self._watch() and self._clock() - started < SHORT_S:
                    reason = "the watch ended at once"
            except Gone as error:
                self._version, reason = None, str(error)
            except KubeError as error:
                reason = str(error)
                self.refusal = reason if isinstance(error, Forbidden) else ""
                if self.refusal:
                    self.settled.set()
            if not reason:
                self._backoff.reset()
                continue
            self._failed(reason)
            await asyncio.sleep(self._backoff.next())

    def adopt(self, item: Object) -> None:
        """Take over the result of our own write before the watch reports it."""
        if key_of(item) in self.objects:
            self._put(item)

    async def _list(self) -> None:
        items, version = await self._kube.list(
            self._resource, self.namespace, self._selector, self._fields
        )
        self._well()
        present = {key_of(item): item for item in items}
        for key in self.objects.keys() - present.keys():
            self._drop(key)
        for item in present.values():
            self._put(item)
        self._version = version
        self.synced.set()
        self.settled.set()

    async def _watch(self) -> bool:
        """Watch until the server ends it; returns whether any event arrived."""
        assert self._version is not None
        any_event = False
        watch = self._kube.watch(
            self._resource, self.namespace, self._selector, self._version, self._fields
        )
        async with aclosing(watch) as events:
            async for kind, item in events:
                any_event = True
                self._well()
                if kind == "DELETED":
                    self._drop(key_of(item), item["metadata"].get("uid"))
                elif kind in ("ADDED", "MODIFIED"):
                    self._put(item)
                self._version = str(item["metadata"]["resourceVersion"])
        self._heard = self._clock()  # the server ended it, so it was alive
        return any_event

    def _put(self, item: Object) -> None:
        key = key_of(item)
        old = self.objects.get(key)
        if old is not None:
            same_object = old["metadata"].get("uid") == item["metadata"].get("uid")
            if same_object and version_of(item) <= version_of(old):
                return  # already known from the answer to a write, or from a list
        self.objects[key] = item
        self._on_change(old, item)

    def _drop(self, key: Key, uid: str | None = None) -> None:
        old = self.objects.get(key)
        if old is None or (uid and old["metadata"].get("uid") != uid):
            return  # a new object of this name is already known
        del self.objects[key]
        self._on_change(old, None)

    def _well(self) -> None:
        self._heard = self._clock()
        if self.error:
            log.info("watch works again", extra={"resource": self._resource.plural})
        self.error = self.refusal = ""
        self._backoff.reset()

    def _failed(self, reason: str) -> None:
        self._on_restart(self._resource.plural)
        if not self.error:  # log it once, not at each try
            extra = {"resource": self._resource.plural, "error": reason}
            log.warning("watch broke off", extra=extra)
        self.error = reason
