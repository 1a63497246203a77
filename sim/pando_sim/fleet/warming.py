"""`Warming`: performs the operator's marks for a router, in virtual time.

The router's own code (`pando_router.warming`) decides which prefixes are hot, which are sent where,
and how a mark proceeds. A prefill is a request of one token in a replica's real scheduler; one that
takes too long is given up, but still computed.
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pando_fleet.placement.placer import Placer
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.records.marks import Mark, MarkKind, Marks
from pando_fleet.redis.client import FleetError, RedisClient
from pando_fleet.registry.replica import Heartbeat, ReplicaState
from pando_router.configuration.settings import RouterSettings
from pando_router.fleet_view.snapshot import Target
from pando_router.warming import hand_off, warm_join
from pando_router.warming.performing import perform
from pando_router.warming.prefiller import TIMEOUT_S, PrefillError
from pando_router.warming.prefixes import HotPrefix, HotPrefixes, SentRequest
from pando_router.warming.warming import OBSERVE_EVERY_S, WITHOUT_BYTES_S
from pando_sim.fleet.control import FleetControl
from pando_sim.fleet.redis.line import WaitedLine
from pando_sim.fleet.routing.errand import Errand
from pando_sim.fleet.routing.router import Surroundings
from pando_sim.worker.settings import MODEL
from pando_sim.worker.stay import Stay
from pando_worker.messages import Generate, SamplingParams

PATH = "/v1/completions"
SEED = 2**31 - 1  # of the one token, which no prompt continues

Prefilled = Callable[[MarkKind, int], None]
"""Called with the tokens that a prefill for such a mark computed."""

_Key = tuple[MarkKind, str]


class Warming:
    """The warming of one router. `seen` takes each prompt that a replica has answered."""

    def __init__(
        self,
        name: str,
        network_s: float,
        around: Surroundings,
        control: FleetControl,
        prefilled: Prefilled,
    ) -> None:
        self._name = name
        self._network_s = network_s
        self._around = around
        self._timeline = around.timeline
        self._control = control
        self._prefilled = prefilled
        limit = RouterSettings.model_fields["hot_prefix_bytes"].default
        self._hot = HotPrefixes(limit, lambda: around.timeline.now_s)
        self._next_s = 0.0
        self._placer = Placer(WaitedLine(around.line), control.pool, control.redis_ms, every_s=None)
        self._first_seen: dict[_Key, float] = {}
        self._at_work: dict[_Key, Errand] = {}
        self._sent = 0  # prefills
        self._ended = 0  # of those
        self.computed = 0  # of those; each produced one token
        self._has_stopped = False

    @property
    def is_at_work(self) -> bool:
        is_open = any(not errand.has_ended for errand in self._at_work.values())
        return is_open or self._ended < self._sent

    def seen(self, keys: bytes, tokens: NDArray[np.int32]) -> None:
        now_s = self._timeline.now_s
        if now_s >= self._next_s:
            self._next_s = now_s + OBSERVE_EVERY_S
            source = SentRequest(PATH, tokens.tobytes(), MODEL)
            self._hot.observe(self._control.pool, keys, source)

    async def look(self, redis: RedisClient, marks: list[Mark]) -> None:
        """Claims what it may of `marks`, just read from Redis, and begins."""
        self._at_work = {key: one for key, one in self._at_work.items() if not one.has_ended}
        is_open = {(mark.kind, mark.replica) for mark in marks}
        self._first_seen = {key: at for key, at in self._first_seen.items() if key in is_open}
        for mark in marks:
            key = (mark.kind, mark.replica)
            beat = self._performable(mark)
            if beat is None or key in self._at_work or self._has_stopped:
                continue
            own = Marks(redis, self._control.pool, self._control.redis_ms)
            claimed = await own.claim(mark, self._name)
            if claimed is not None:
                errand = self._at_work[key] = Errand()
                await errand.begin(self._perform(errand, redis, own, claimed, beat))

    def stop(self) -> None:
        """The trace is over: sends nothing more; running prefills are still computed."""
        self._has_stopped = True

    async def close(self) -> None:
        for errand in self._at_work.values():
            await errand.cancel()

    def _performable(self, mark: Mark) -> Heartbeat | None:
        """The replica's last heartbeat, if this router should claim the mark now."""
        now_s = self._timeline.now_s
        first_s = self._first_seen.setdefault((mark.kind, mark.replica), now_s)
        beats = self._control.heard()
        beat = next((beat for beat in beats if beat.replica == mark.replica), None)
        if beat is None or (mark.kind is MarkKind.WARM and beat.state is not ReplicaState.READY):
            return None
        return beat if self._has_bytes or now_s - first_s >= WITHOUT_BYTES_S else None

    @property
    def _has_bytes(self) -> bool:
        return next(self._hot.hottest(self._control.pool), None) is not None

    async def _perform(
        self, errand: Errand, redis: RedisClient, marks: Marks, mark: Mark, beat: Heartbeat
    ) -> None:
        prefills = partial(self._prefills, errand, redis, mark, beat)
        try:
            await perform(
                marks,
                mark,
                prefills if self._has_bytes else None,
                partial(self._prefilled, mark.kind),
            )
        except FleetError:  # the claim expires, and the mark continues when Redis is back
            pass
        finally:
            self._placer.write()

    def _prefills(
        self, errand: Errand, redis: RedisClient, mark: Mark, beat: Heartbeat, left: int
    ) -> AsyncGenerator[int, None]:
        pool, prefill = self._control.pool, partial(self._prefill, errand)
        tree = PrefixTree(redis, pool, self._control.redis_ms)
        if mark.kind is MarkKind.WARM:
            hottest = self._hot.hottest(pool, warm_join.LEAST_REQUESTS)
            return warm_join.warm_join(hottest, beat, left, prefill, tree)
        hottest = self._hot.hottest(pool, hand_off.LEAST_REQUESTS)
        target = Target(pool, MODEL, "", "", (), (), (), beat.bytes_per_token)
        return hand_off.hand_off(
            hottest, beat, lambda _: target, prefill, tree, self._placer, self._name
        )

    async def _prefill(
        self, errand: Errand, url: str, hot: HotPrefix, bytes_per_token: float
    ) -> int:
        """Like `pando_router.warming.prefiller.Prefill`."""
        replica = self._around.replicas.get(url.removeprefix("http://"))
        if replica is None or self._has_stopped:
            raise PrefillError("the replica is gone" if replica is None else "the trace is over")
        self._placer.write()
        count = ceil(len(hot.keys) // KEY_BYTES * CHUNK_BYTES / bytes_per_token)
        tokens = np.frombuffer(hot.source.body, dtype=np.int32)[:count]
        self._sent += 1
        command = Generate(
            rid=f"prefill-{self._name}-{self._sent}",
            input_ids=tokens,  # type: ignore[arg-type]  # as in job.py
            sampling=SamplingParams(max_new_tokens=1, seed=SEED),
        )
        handling_s = self._around.cost.request_s(len(tokens))
        arrives_s = self._timeline.now_s + self._network_s + handling_s
        waiter = _Waiter(self, errand)
        replica.submit(Stay(command, waiter, arrives_s))
        late = PrefillError(f"no complete answer within {TIMEOUT_S:g} s")
        self._timeline.after(TIMEOUT_S, partial(waiter.hear, late))
        return await errand.answer()

    def over(self, waiter: "_Waiter", answer: int | PrefillError) -> None:
        """The prefill has its result."""
        self._ended += 1
        self.computed += not isinstance(answer, PrefillError)
        self._timeline.after(self._network_s, partial(waiter.hear, answer))


@dataclass(slots=True, eq=False)
class _Waiter:
    """Follows one prefill. Its first result counts."""

    warming: Warming
    errand: Errand
    has_heard: bool = False

    async def hear(self, answer: int | PrefillError) -> None:
        if not self.has_heard:
            self.has_heard = True
            await self.errand.go_on(answer)

    def first_byte(self, stay: Stay) -> None:
        pass

    def finished(self, stay: Stay) -> None:
        self.warming.over(self, len(stay.command.input_ids) - stay.cached_tokens)

    def refused(self, stay: Stay, status: int) -> None:
        self.warming.over(self, PrefillError(f"the replica answered {status}"))

    def lost(self, stay: Stay) -> None:
        self.warming.over(self, PrefillError("the replica was lost"))
