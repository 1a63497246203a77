"""The shares of pools that want the same GPUs."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_operator.scaling.sharing import MARGIN, Claim, Grant, grants


def claim(pool: str, wanted: int, held: int, **more: int) -> Claim:
    fields = {"least": min(1, wanted), "kept": held, "gpus": 1, "priority": 0, **more}
    return Claim(pool=pool, wanted=wanted, held=held, **fields)


def replicas(*claims: Claim, total: int) -> dict[str, int]:
    return {pool: grant.replicas for pool, grant in grants(claims, "H100", total).items()}


def settled(claims: list[Claim], total: int) -> dict[str, int]:
    """What pools have after they have followed their grants for a while."""
    for _ in range(2 * len(claims) + 2):
        now = replicas(*claims, total=total)
        claims = [replace(one, held=now[one.pool], kept=now[one.pool]) for one in claims]
    return {one.pool: one.held for one in claims}


def test_who_has_priority_gets_all_that_it_wants_and_others_their_fewest() -> None:
    chat, code = claim("chat", 6, 6, priority=10), claim("code", 4, 2, least=1)
    found = grants([chat, code], "H100", 8)
    assert found["chat"] == Grant(6, holds=6)
    words = "wants 4, gets 2: 8 of 8 H100 in use; chat has priority 10"
    assert found["code"] == Grant(2, words, holds=2)
    assert settled([claim("chat", 9, 6, priority=10), code], 8) == {"chat": 7, "code": 1}


def test_one_that_gains_a_replica_waits_until_it_is_free() -> None:
    chat, code = claim("chat", 5, 2, priority=10), claim("code", 6, 6)
    found = grants([chat, code], "H100", 8)
    assert (found["chat"].replicas, found["code"].replicas) == (2, 3)
    assert found["chat"].reason == (
        "wants 5, gets 2: 8 of 8 H100 in use; 5 once others are given back by code"
    )
    # Those that are being deleted are still held, and none of them comes back.
    assert replicas(chat, claim("code", 6, 5, kept=3), total=8) == {"chat": 3, "code": 3}
    assert replicas(claim("code", 6, 6, kept=3), total=6) == {"code": 3}
    assert replicas(chat, claim("code", 6, 3), total=8) == {"chat": 5, "code": 3}


def test_among_equals_the_one_further_over_its_target_gets_the_next() -> None:
    # 9 of 3 is further over than 4 of 3.
    assert replicas(claim("a", 9, 3), claim("b", 4, 3), total=7) == {"a": 4, "b": 3}
    assert settled([claim("a", 9, 3), claim("b", 3, 3)], 6) == {"a": 4, "b": 2}


def test_a_small_difference_moves_nothing() -> None:
    """Each moved replica loads a model."""
    for wanted in (3, 4, 5):
        assert replicas(claim("a", wanted, 3), claim("b", 3, 3), total=6)["b"] == 3


def test_a_sleeping_pool_gets_one_when_it_wakes() -> None:
    busy, woken = claim("busy", 9, 8), claim("woken", 1, 0, least=0)
    assert settled([busy, woken], 8) == {"busy": 7, "woken": 1}


def test_a_replica_of_several_gpus_needs_all_of_them() -> None:
    big, small = claim("big", 2, 1, gpus=4), claim("small", 3, 3)
    assert replicas(big, small, total=8)["big"] == 1
    assert settled([claim("big", 4, 0, gpus=4), claim("small", 4, 4)], 8) == {"big": 1, "small": 4}


@st.composite
def many_claims(draw: st.DrawFn) -> list[Claim]:
    def one(number: int) -> Claim:
        kept = draw(st.integers(0, 8))
        return Claim(
            pool=f"p{number}",
            wanted=draw(st.integers(0, 8)),
            least=draw(st.integers(0, 3)),
            held=kept + draw(st.sampled_from([0, 0, 1, 3])),
            kept=kept,
            gpus=draw(st.sampled_from([1, 1, 2, 4])),
            priority=draw(st.sampled_from([0, 0, 5])),
        )

    return [one(number) for number in range(draw(st.integers(0, 5)))]


CLAIMS = many_claims()


@given(CLAIMS, st.integers(0, 24))
def test_what_holds_for_all_claims(claims: list[Claim], total: int) -> None:
    found = grants(claims, "H100", total)
    for one in claims:
        assert 0 <= found[one.pool].replicas <= one.wanted
        assert bool(found[one.pool].reason) == (found[one.pool].replicas < one.wanted)
    # Whoever grows, GPUs in use stay within the budget, unless more were in use already.
    held = sum(one.held * one.gpus for one in claims)
    more = {one.pool: max(0, found[one.pool].replicas - one.kept) for one in claims}
    grown = sum((one.held + more[one.pool]) * one.gpus for one in claims)
    assert grown <= max(held, total)
    # Followed for a while, grants come to rest within the budget, and waste none.
    rest = settled(claims, total)
    at_rest = [replace(one, held=rest[one.pool], kept=rest[one.pool]) for one in claims]
    assert replicas(*at_rest, total=total) == rest
    free = total - sum(rest[one.pool] * one.gpus for one in claims)
    assert free >= 0
    assert not [one for one in claims if rest[one.pool] < one.wanted and one.gpus <= free]


@given(CLAIMS, st.integers(0, 24))
def test_no_lower_priority_has_more_than_its_fewest_while_a_higher_one_waits(
    claims: list[Claim], total: int
) -> None:
    rest = settled(claims, total)
    for high, low in product(claims, claims):
        if high.priority > low.priority and high.gpus == low.gpus and rest[high.pool] < high.wanted:
            assert rest[low.pool] <= min(low.least, low.wanted)


@pytest.mark.parametrize("total", range(2, 17))
def test_of_two_equals_neither_is_much_further_over_its_target(total: int) -> None:
    """Against trying all divisions."""
    for wanted_a, wanted_b, held in product(range(1, 9), range(1, 9), range(total + 1)):
        a, b = claim("a", wanted_a, held), claim("b", wanted_b, total - held)
        rest = settled([a, b], total)
        worst = max(a.over(rest["a"]), b.over(rest["b"]))
        best = (
            min(max(a.over(n), b.over(total - n)) for n in range(1, total) if n <= wanted_a)
            if total > 1
            else worst
        )
        assert worst <= max(1.0, best) * MARGIN + 1e-9
