"""The choice, compared with all candidates' terms; placement itself examines only a few of them."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.placement.placer import PoolFull
from tests.examples import examples
from tests.fleet.world import World, path

_PROMPT = path("a prompt", 24)
_TOKENS = 24 * 64


@dataclass(frozen=True)
class _Replica:
    """A replica drawn by `_replicas`; few values, so that some are equal."""

    held: int  # chunks of the prompt
    prefill_per_s: float
    doubling: float  # tokens of context
    capacity: int
    bytes_per_token: float
    cached: int  # tokens
    leaf_age_s: int
    waiting: tuple[int, ...]  # prompt tokens of requests there
    prefilled: int  # requests there that have their first token


_replicas = st.builds(
    _Replica,
    held=st.one_of(st.sampled_from((0, 12, 24)), st.integers(0, 24)),
    prefill_per_s=st.sampled_from((0.0, 1_000.0, 1_000.0, 1_700.0)),
    doubling=st.sampled_from((0.0, 900.0, 900.0, 20_000.0)),
    capacity=st.sampled_from((0, 2_500, 100_000)),
    bytes_per_token=st.sampled_from((4.0, 4.0, 3.7)),
    cached=st.sampled_from((0, 1_000, 2_500)),
    leaf_age_s=st.sampled_from((0, 1, 100)),
    waiting=st.lists(st.sampled_from((1, 500, 1_536)), max_size=2).map(tuple),
    prefilled=st.integers(0, 2),
)


async def _build(world: World, replicas: list[_Replica], busy: int = 0) -> None:
    """Build a pool with `busy` more waiting requests at each replica."""
    for number, replica in enumerate(replicas):
        name = f"r{number}"
        await world.tree.touch(name, "1", _PROMPT[: 8 * replica.held], 10_000)
        now_ms, world.now_ms = world.now_ms, world.now_ms - 1_000 * replica.leaf_age_s
        await world.tree.touch(name, "1", path("its oldest", 1), 10_000)
        world.now_ms = now_ms
        await world.beat(
            name,
            prefill_tokens_per_s=replica.prefill_per_s,
            doubling_context=replica.doubling,
            capacity_tokens=replica.capacity,
            cached_tokens=min(replica.cached, replica.capacity),
            bytes_per_token=replica.bytes_per_token,
        )
        for tokens in (*replica.waiting, *[200] * busy):
            await world.place(prompt_tokens=tokens, only=name)
        for _ in range(replica.prefilled):
            await world.prefilled(await world.place(prompt_tokens=100, only=name))


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    replicas=st.lists(_replicas, min_size=1, max_size=7),
    busy=st.integers(0, 2),
    most=st.sampled_from((0, 0, 1, 3)),
    asked=st.lists(st.sampled_from((0, 5, 24)), min_size=1, max_size=4),
)
async def test_the_cheapest_is_chosen_and_the_holder_of_most_is_reported(
    redis_url: str, replicas: list[_Replica], busy: int, most: int, asked: list[int]
) -> None:
    async with World.open(redis_url) as world:
        await _build(world, replicas, busy)
        for extra in asked:  # each changes the loads for the next one
            keys = _PROMPT + path("behind it", extra)
            fields = {"prompt_tokens": _TOKENS + 64 * extra, "max_outstanding": most}
            ask = world.ask(keys, **fields)
            candidates = await world.placer.explain(ask)
            free = [candidate for candidate in candidates if not candidate.full]
            if not free:
                with pytest.raises(PoolFull):
                    await world.placer.place(ask)
                return
            placed = await world.placer.place(ask)
            best = min((c.cost_s, c.outstanding) for c in free)
            assert (placed.chosen.cost_s, placed.chosen.outstanding) == best
            assert placed.chosen.candidate in free
            longest = max(candidate.matched_chunks for candidate in candidates)
            assert placed.chosen.most_chunks == longest
            holders = {(c.replica, c.full) for c in candidates if c.matched_chunks == longest}
            assert (placed.chosen.holder, placed.chosen.holder_full) in holders
            assert placed.chosen.holder_full == all(full for _, full in holders)
            await world.placer.flush()


async def test_equal_costs_are_seen_as_equal_whichever_replica_is_looked_at_first(
    world: World,
) -> None:
    """With these numbers the computed depth is one chunk too deep because of rounding in
    doubles."""
    await world.beat("busier", "other")
    for name in ("busier", "other"):
        await world.tree.touch(name, "1", _PROMPT[: 8 * 14], 10_000)
        await world.place(prompt_tokens=_TOKENS, only=name)
    await world.prefilled(await world.place(prompt_tokens=100, only="busier"))
    for _ in range(12):  # each lease starts the search at another replica
        placed = await world.place(_PROMPT, _TOKENS)
        assert placed.chosen.replica == "other"
        await world.release(placed)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    replicas=st.lists(_replicas, min_size=1, max_size=5),
    leases=st.lists(st.sampled_from("abcdef"), min_size=2, max_size=8),
)
async def test_asks_of_one_call_are_placed_as_one_after_the_other_would_be(
    redis_url: str, replicas: list[_Replica], leases: list[str]
) -> None:
    """Also if a lease is requested again, which first releases what it held."""
    placed = {}
    for at_once in (False, True):
        async with World.open(redis_url) as world:
            await _build(world, replicas)
            asks = [world.ask(_PROMPT, _TOKENS, lease=lease) for lease in leases]
            if at_once:
                placements = await asyncio.gather(*map(world.placer.place, asks))
            else:
                placements = [await world.placer.place(ask) for ask in asks]
            placed[at_once] = [(p.chosen, p.chosen.most_chunks) for p in placements]
            await world.placer.flush()
    assert placed[True] == placed[False]
