"""Records Kubernetes Events about pools: one for each change, with a count of its repetitions.

The caller records changes, not states, so a reconcile that finds nothing new records nothing. The
same words about the same object within `SAME_S` raise the count of the existing Event. Events only
inform people, so one that cannot be written is logged and not tried again.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import xxhash

from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Conflict, KubeError, NotFound
from pando_operator.kube.resources import EVENTS, Key, Object, key_of

SAME_S = 3600.0  # for which API servers keep an Event by default
KNOWN = 1024  # Events whose counts are remembered
COMPONENT = "pando-operator"
LONGEST = 1024  # bytes; the API's limit for a message

EventType = Literal["Normal", "Warning"]

log = logging.getLogger("pando.operator.events")


@dataclass(slots=True)
class _Recorded:
    key: Key
    count: int
    at: float


class Recorder:
    """Writes Events in the name of one operator process, `identity`."""

    def __init__(
        self,
        kube: Kube,
        identity: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube, self._identity, self._clock, self._now = kube, identity, clock, now
        self._recorded: OrderedDict[tuple[str, ...], _Recorded] = OrderedDict()

    async def record(self, about: Object, kind: EventType, reason: str, message: str) -> None:
        """`reason` is one CamelCase word, `message` a sentence."""
        message = message.encode()[:LONGEST].decode(errors="ignore")
        words = (str(about["metadata"].get("uid", "")), kind, reason, message)
        recorded = self._recorded.get(words)
        try:
            if recorded is not None and self._clock() - recorded.at < SAME_S:
                try:
                    await self._count(recorded)
                    return
                except NotFound:
                    pass  # the API server has dropped it: write a new one
            self._remember(words, await self._write(about, *words[1:]))
        except KubeError as error:
            extra = {"about": str(key_of(about)), "reason": reason, "error": str(error)}
            log.warning("event not written", extra=extra)

    async def _count(self, recorded: _Recorded) -> None:
        recorded.count += 1
        recorded.at = self._clock()
        body = {"count": recorded.count, "lastTimestamp": self._time()}
        await self._kube.patch(EVENTS, recorded.key, body, manager=COMPONENT)

    async def _write(self, about: Object, kind: str, reason: str, message: str) -> _Recorded:
        """The name depends on the time, so a restarted operator writes new Events."""
        where, time_text = key_of(about), self._time()
        words = f"{kind} {reason} {message} {self._identity} {self._now().isoformat()}"
        key = Key(where.namespace, f"{where.name}.{xxhash.xxh3_64_hexdigest(words.encode())}")
        body = {
            "metadata": {"name": key.name, "namespace": key.namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": where.name,
                "namespace": where.namespace,
                "uid": about["metadata"].get("uid", ""),
                "resourceVersion": about["metadata"].get("resourceVersion", ""),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity,
            "firstTimestamp": time_text,
            "lastTimestamp": time_text,
            "count": 1,
        }
        with suppress(Conflict):  # a repeated call whose first answer was lost
            await self._kube.create(EVENTS, body)
        return _Recorded(key, 1, self._clock())

    def _remember(self, words: tuple[str, ...], recorded: _Recorded) -> None:
        self._recorded[words] = recorded
        self._recorded.move_to_end(words)
        while len(self._recorded) > KNOWN:
            self._recorded.popitem(last=False)

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
