"""Placement over time, with light workers in virtual time: hot prefixes, any number of routers."""

import random
from collections import Counter
from collections.abc import Iterator

from pando_fleet.redis.client import connect
from tests.fleet.light_fleet import LightFleet, Outcome, Request

_PREFILL_PER_S = 10_000.0
_CHUNK = 64  # tokens
_HOT = tuple(range(1, 101))  # a prefix of 100 chunks


def _hot_requests(load: float, seconds: float, start_ms: float = 0.0) -> Iterator[Request]:
    """The hot prefix plus a unique chunk, at `load` times the rate that one holder can prefill."""
    rng, at_ms, per_ms = random.Random(1), start_ms, load * _PREFILL_PER_S / _CHUNK / 1000
    for number in range(int(seconds * 1000 * per_ms)):
        at_ms += rng.expovariate(per_ms)
        yield Request(at_ms, (*_HOT, 10**6 + number), 101 * _CHUNK, 1)


def _other_requests(per_s: float, seconds: float, start_ms: float) -> Iterator[Request]:
    """New prompts of 20 chunks."""
    for number in range(int(per_s * seconds)):
        first = 10**9 + 20 * number
        at_ms = start_ms + 1000 * number / per_s
        yield Request(at_ms, tuple(range(first, first + 20)), 20 * _CHUNK, 1)


async def _run(
    redis_url: str, requests: list[Request], *, routers: int = 1, capacity_chunks: int = 4_000
) -> tuple[LightFleet, Outcome]:
    redis = connect(redis_url)
    try:
        await redis.flushall()
        world = LightFleet(
            redis,
            routers=routers,
            capacity_chunks=capacity_chunks,
            prefill_per_s=_PREFILL_PER_S,
            chunk_tokens=_CHUNK,
        )
        return world, await world.run(requests)
    finally:
        await redis.aclose()


def _holders(fleet: LightFleet) -> int:
    return sum(all(chunk in worker.cache for chunk in _HOT) for worker in fleet.workers.values())


async def test_a_prefix_that_its_holder_can_serve_alone_stays_with_it(valkey_url: str) -> None:
    first = Request(0.0, (*_HOT, 1), 101 * _CHUNK, 1)
    fleet, _ = await _run(valkey_url, [first, *_hot_requests(load=0.5, seconds=3, start_ms=1_000)])
    assert _holders(fleet) == 1


async def test_a_prefix_at_ten_times_a_replicas_capacity_is_shared_evenly_by_all(
    valkey_url: str,
) -> None:
    fleet, outcome = await _run(valkey_url, list(_hot_requests(load=10, seconds=1)))
    assert _holders(fleet) == 8
    mean = outcome.requests.total() / 8
    assert max(outcome.requests.values()) < 1.1 * mean, outcome.requests
    # Eight of ten can be served in time; the rest wait no longer than the overload requires.
    assert outcome.ttft_ms(0.99) < 1_000 * (10 / 8 - 1) + 2 * 1_000 * len(_HOT) * 64 / 10_000
    assert outcome.hit_rate > 0.97


async def test_the_copies_of_a_hot_prefix_go_cold_again_when_others_need_their_place(
    valkey_url: str,
) -> None:
    hot = list(_hot_requests(load=6, seconds=0.5))
    later = list(_other_requests(per_s=30, seconds=10, start_ms=3_000))
    again = Request(14_000, (*_HOT, 2 * 10**6), 101 * _CHUNK, 1)
    fleet, outcome = await _run(valkey_url, [*hot, *later, again], capacity_chunks=500)
    while_hot = {name for at, name, *_ in outcome.served if at < 1_002_000}
    assert len(while_hot) >= 6
    assert _holders(fleet) == 1, "the one that was asked last"
    computed_anew_ms = 1_000 * 101 * _CHUNK / _PREFILL_PER_S
    assert outcome.served[-1][3] > 0.99 * computed_anew_ms


def _conversations(seed: int, count: int) -> list[Request]:
    """A generated trace: sessions that grow turn by turn, a third of them on shared prompts."""
    rng, ids = random.Random(seed), iter(range(1, 10**9))
    shared = [tuple(next(ids) for _ in range(30)) for _ in range(6)]
    open_sessions: list[tuple[int, ...]] = []
    requests, at_ms = [], 0.0
    for _ in range(count):
        at_ms += rng.expovariate(1 / 60)
        if open_sessions and rng.random() < 0.7:
            path = open_sessions.pop(rng.randrange(len(open_sessions)))
        else:
            path = rng.choice(shared) if rng.random() < 0.33 else ()
        path += tuple(next(ids) for _ in range(rng.randint(2, 40)))
        requests.append(Request(at_ms, path, len(path) * _CHUNK, rng.randint(1, 200)))
        open_sessions = [*open_sessions[-60:], path]
    return requests


async def test_four_routers_place_as_one_does(valkey_url: str) -> None:
    trace = _conversations(seed=3, count=1_000)
    hit_rates, spreads = [], []
    for routers in (1, 4):
        _, outcome = await _run(valkey_url, trace, routers=routers, capacity_chunks=2_000)
        hit_rates.append(outcome.hit_rate)
        spreads.append(_spread(outcome.prefilled))
    assert hit_rates[0] > 0.3, "the trace has something to hit"
    assert abs(hit_rates[0] - hit_rates[1]) < 0.01
    assert abs(spreads[0] - spreads[1]) < 0.05


def _spread(load: Counter[str]) -> float:
    """The busiest replica's load over the mean."""
    return max(load.values()) / (load.total() / len(load))
