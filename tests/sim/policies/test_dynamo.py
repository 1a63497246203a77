"""Dynamo's cost, by its documentation's example and computed by hand."""

import asyncio
from collections import Counter
from dataclasses import replace

from pando_router.core.route import Lease, Route
from pando_sim.policies import dynamo
from tests.sim.fleet.world import request
from tests.sim.policies.routers import ask, fleet, question, went


def test_the_documented_example() -> None:
    """A prompt of 10 blocks: 2, 5 and 8 of them cached, 10, 5 and 9 blocks to decode."""
    costs = [
        dynamo.cost(prefill_blocks=10, overlap_blocks=overlap, decode_blocks=decode)
        for overlap, decode in ((2, 10), (5, 5), (8, 9))
    ]
    assert costs == [18, 10, 11]


def test_of_idle_replicas_the_one_with_the_longest_prefix_wins() -> None:
    known = fleet("a", "b", cached={"a": 64, "b": 180})
    place = ask(dynamo.KvRouter(known), known, *range(5))
    assert (place.replica, place.matched_chunks) == ("b", 2)  # whole blocks only


def test_a_prompt_under_way_counts_until_its_first_token() -> None:
    known = fleet("a", "b", cached={"a": 64})
    policy = dynamo.KvRouter(known)
    first = question(known, request(1, 0.0, *range(10)))
    place = asyncio.run(policy.place(first))
    assert place.replica == "a"
    # 20 blocks, 10 of them active at a, 1 cached: 9 + 20 - 1 + 20 there against 20 + 20.
    longer = question(known, request(2, 0.0, *range(20)))
    elsewhere = asyncio.run(policy.place(longer))
    assert elsewhere.replica == "b"
    lease(elsewhere).close()
    lease(place).answered(complete=False)
    assert went(policy, known, *range(20)) == "a"  # 19 + 20


def test_blocks_of_a_request_count_until_its_end() -> None:
    known = fleet("a", "b", cached={"a": 640})
    policy = dynamo.KvRouter(known)
    first = question(known, request(1, 0.0, *range(10)))
    place = asyncio.run(policy.place(first))
    assert place.replica == "a"
    lease(place).answered(complete=False)
    known.cached = {"a": 64}
    other = question(known, request(2, 0.0, *range(50, 60)))
    elsewhere = asyncio.run(policy.place(other))
    assert elsewhere.replica == "b"  # 9 + 20 at a against 10 + 10
    lease(elsewhere).close()
    lease(place).close()
    assert went(policy, known, *range(50, 60)) == "a"


def test_a_block_that_requests_share_counts_once() -> None:
    known = fleet("a", "b", cached={"a": 2 * 64})
    policy = dynamo.KvRouter(known)
    asked = [question(known, request(n, 0.0, 1, 2, 3 + n)) for n in range(2)]
    places = []
    for each in asked:
        places.append(asyncio.run(policy.place(each)))
        lease(places[-1]).answered(complete=False)
    # At a: 1 + 3, then 1 + 4 against 3 + 3 at b.
    assert [place.replica for place in places] == ["a", "a"]
    assert len(policy.loads["a.1"].blocks) == 4
    lease(places[0]).close()
    assert policy.loads["a.1"].blocks == Counter(dict.fromkeys(_keys(1, 2, 4), 1))
    lease(places[1]).close()
    assert not policy.loads


def lease(route: Route) -> Lease:
    assert route.lease is not None
    return route.lease


def _keys(*blocks: int) -> list[bytes]:
    keys = request(0, 0.0, *blocks).prompt.keys()
    return [keys[at : at + 8] for at in range(0, len(keys), 8)]


def test_equal_costs_are_drawn_by_the_seed() -> None:
    def draws() -> list[str]:
        known = fleet("a", "b", "c")
        return [went(dynamo.KvRouter(known), known, at) for at in range(20)]

    assert draws() == draws()
    assert {*draws()} == {"a", "b", "c"}


def test_a_prompt_without_a_whole_block_is_counted_in_and_out_again() -> None:
    """Its tokens count while it runs, and another request's end does not remove them."""
    known = fleet("a")
    policy = dynamo.KvRouter(known)
    short = replace(question(known, request(1, 0.0, 7)), keys=b"")
    long = question(known, request(2, 0.0, *range(4)))
    places = [asyncio.run(policy.place(each)) for each in (short, long)]
    lease(places[1]).close()
    lease(places[0]).close()
    assert not policy.loads
