"""`SharedPlacement`: Pando's own placement, by the same scripts in a real Redis as routers use.

What no answer waits for is written when a router would write it: at once after a pause, then no
sooner than `EVERY_S` later or with the next placement.
"""

import math
from collections.abc import Callable

from pando_fleet import Ask, FleetUnavailable, NoReplica, Placement, Placer, PoolFull
from pando_fleet.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.settling import EVERY_S
from pando_router import rendezvous
from pando_sim.fleet.interfaces import End, Member, Place, Question, RouterContext, Shortage
from pando_sim.spec import RouterSpec

Pick = Callable[[Question], str | None]
"""A replica's name, where a policy of the router chooses; None leaves it to Redis."""


def _by_redis(question: Question) -> str | None:
    return None


def affinity(question: Question) -> bytes:
    """The start of the prompt, which keeps prompts that share it together."""
    # A prompt of less than a chunk has no key.
    return question.keys[:KEY_BYTES] or question.request.prompt.tokens().tobytes()[:CHUNK_BYTES]


class SharedPlacement:
    """A rule; as `pando_router.dispatch` and `flight` do it."""

    def __init__(self, context: RouterContext, spec: RouterSpec, pick: Pick = _by_redis) -> None:
        self._context = context
        self._spec = spec
        self._pick = pick
        self._placer = Placer(context.line, context.pool, context.redis_ms, every_s=None)
        self._lease_ms = round(1000 * spec.lease_s)
        self._wrote_s = -EVERY_S
        self._is_due = False

    async def place(self, question: Question) -> Place | Shortage:
        picked = self._pick(question)
        self._placer.write()
        try:
            try:
                placement = await self._placer.place(self._ask(question, picked))
            except NoReplica:
                if picked is None:
                    raise
                # It drains or warms since this router last looked.
                placement = await self._placer.place(self._ask(question, None, picked))
        except PoolFull:
            return Shortage.FULL
        except (FleetUnavailable, NoReplica):  # which has come back empty, maybe
            return self._alone(question, picked)
        self._write_soon()
        chosen = placement.chosen
        return Place(
            chosen.replica,
            chosen.incarnation,
            chosen.matched_chunks,
            chosen.matched_tokens,
            placement,
        )

    def first_byte(self, question: Question, place: Place, cached_tokens: int) -> None:
        if not isinstance(place.handle, Placement):
            return
        self._placer.prefilled(place.handle)
        bytes_per_token = question.prompt_bytes / question.prompt_tokens
        delivered = int(cached_tokens * bytes_per_token / CHUNK_BYTES)  # full chunks
        # One chunk is within what page size and uneven bytes per token make of a full hit.
        if delivered < place.matched_chunks - 1:
            self._cut(place.handle, question.keys, delivered)
        self._write_soon()

    def renew(self, question: Question, place: Place) -> None:
        if isinstance(place.handle, Placement):
            self._placer.renew(place.handle, self._lease_ms)
            self._write_soon()

    def ended(self, question: Question, place: Place, end: End) -> None:
        if not isinstance(place.handle, Placement):
            return
        if end is End.UNANSWERED:
            # Placing touched the whole path; the replica holds only what it held before.
            self._cut(place.handle, question.keys, place.matched_chunks)
        self._placer.release(place.handle)
        self._write_soon()

    def close(self) -> None:
        self._placer.write()

    def _ask(self, question: Question, only: str | None, without: str | None = None) -> Ask:
        members, exclude = self._context.members(), []
        if len(question.allowed) < len(members):  # the usual case costs nothing a replica
            allowed = {member.name for member in question.allowed}
            exclude = [member.name for member in members if member.name not in allowed]
        if without is not None:
            exclude.append(without)
        return Ask(
            keys=question.keys,
            prompt_tokens=question.prompt_tokens,
            output_tokens=question.output_tokens,
            lease=question.lease,
            lease_ms=self._lease_ms,
            exclude=tuple(exclude),
            only=only,
            max_outstanding=self._spec.max_outstanding,
        )

    def _alone(self, question: Question, picked: str | None) -> Place | Shortage:
        """Without Redis: what the policy picked, or else where the prompt's start belongs."""
        by_name = {one.name: one for one in question.allowed if self._has_room(one)}
        if not by_name:
            return Shortage.FULL
        if picked not in by_name:
            loads = {name: self._context.in_flight(name) for name in by_name}
            picked = by_name[rendezvous.choose(affinity(question), loads)].name
        return Place(picked, by_name[picked].beat.incarnation)

    def _has_room(self, member: Member) -> bool:
        """By this router's own count, which is all there is without Redis."""
        limits = filter(None, (self._spec.max_outstanding, member.beat.max_requests))
        return self._context.in_flight(member.name) < min(limits, default=math.inf)

    def _cut(self, placement: Placement, keys: bytes, depth: int) -> None:
        if depth * KEY_BYTES < len(keys):
            self._placer.cut(placement, keys, depth)

    def _write_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            waits_s = self._wrote_s + EVERY_S - self._context.monotonic_s()
            self._context.after(max(0.0, waits_s), self._write)

    def _write(self) -> None:
        self._is_due = False
        self._wrote_s = self._context.monotonic_s()
        self._placer.write()
