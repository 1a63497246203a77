"""Hand-off: the remaining replicas compute the hot prefixes that only a leaving one holds."""

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace

from pando_fleet.placement.lease import Lease
from pando_fleet.placement.placer import Ask, NoReplica, Placer
from pando_fleet.placement.prefix import CHUNK_BYTES, KEY_BYTES
from pando_fleet.placement.tree import PrefixTree
from pando_fleet.registry.replica import Heartbeat
from pando_router.fleet_view.snapshot import Target
from pando_router.warming.plan import plan
from pando_router.warming.prefiller import MAX_FAILURES, TIMEOUT_S, Prefill, PrefillError
from pando_router.warming.prefixes import HotPrefix

LEAST_REQUESTS = 0.5  # recent; a continuing conversation asked once for its latest prefix
EVERYTHING = 1 << 40  # tokens; the caller stops when the tokens really computed exceed the budget


async def hand_off(
    hottest: Iterable[HotPrefix],
    beat: Heartbeat,
    target_of: Callable[[str], Target | None],
    prefill: Prefill,
    tree: PrefixTree,
    placer: Placer,
    router: str,
) -> AsyncGenerator[int, None]:
    """Yields the tokens that each prefill computed; stop iterating when enough are spent.

    Args:
        beat: of the leaving replica.
        target_of: finds the replicas that serve a model or adapter.
        router: this router's name.

    Raises PrefillError, FleetError.
    """
    failures = 0
    for hot in plan(hottest, EVERYTHING, beat.bytes_per_token):
        target = target_of(hot.source.name)
        held = await tree.match(beat.replica, beat.incarnation, hot.keys)
        if target is None or not held:
            continue
        hot = replace(hot, keys=hot.keys[: held * KEY_BYTES])
        ask = _ask(hot, target, beat, router)
        survivors = await placer.explain(ask)
        elsewhere = max((survivor.matched_chunks for survivor in survivors), default=0)
        if elsewhere < held:
            hot = replace(hot, own_keys=hot.keys[elsewhere * KEY_BYTES :])
            try:
                yield await _move(hot, ask, target.bytes_per_token, prefill, placer)
            except PrefillError:
                failures += 1
                if failures == MAX_FAILURES:
                    raise


def _ask(hot: HotPrefix, target: Target, leaving: Heartbeat, router: str) -> Ask:
    chunks = len(hot.keys) // KEY_BYTES
    return Ask(
        keys=hot.keys,
        prompt_tokens=max(1, int(chunks * CHUNK_BYTES / target.bytes_per_token)),
        output_tokens=1,
        lease=f"{router}-hand-off-{leaving.incarnation}-{hot.keys[-KEY_BYTES:].hex()}",
        lease_ms=int(2 * TIMEOUT_S * 1000),
        exclude=(leaving.replica, *target.foreign),
    )


async def _move(
    hot: HotPrefix, ask: Ask, bytes_per_token: float, prefill: Prefill, placer: Placer
) -> int:
    try:
        lease = await Lease.take(placer, ask)
    except NoReplica as error:
        raise PrefillError("no other replica is ready") from error
    with lease:
        computed = await prefill(lease.placement.chosen.url, hot, bytes_per_token)
        lease.answered(complete=True)
        return computed
