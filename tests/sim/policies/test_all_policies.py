"""All policies in whole runs, and their list."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router import policies as routers
from pando_router.core import rendezvous
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome, Run
from pando_sim.request import Request
from tests.sim.fleet.world import by_number, conversations, request, run, with_router

SPEC = with_router(routers=2)
REQUESTS = conversations(6, 8, 0.4)


def played(name: str, requests: list[Request], *, strides: bool = True) -> Run:
    spec = replace(SPEC, policy=name)
    return run(requests, spec, policy=POLICIES[name].factory(spec), strides=strides)


@pytest.mark.parametrize("name", POLICIES)
def test_a_seed_gives_one_run_also_in_single_steps(name: str) -> None:
    requests = conversations(4, 4, 0.11)
    first, again = (played(name, requests, strides=strides) for strides in (True, False))
    assert repr(first.served) == repr(again.served)
    assert {served.outcome for served in first.served} == {Outcome.FINISHED}


def test_all_of_the_routers_policies_are_there() -> None:
    assert {*routers.POLICIES} <= {*POLICIES}


def test_policies_that_know_prefixes_find_them() -> None:
    knowing = ("cache_aware", "smg", "llm_d", "dynamo", "production_stack")
    cached = {
        name: sum(served.cached_tokens for served in played(name, REQUESTS).served)
        for name in ("random", *knowing)
    }
    for name in knowing:
        assert cached[name] > 1.1 * cached["random"], (name, cached)


def in_sessions() -> Iterator[Request]:
    for number in range(12):
        yield replace(request(number, 0.7 * number, number), session=f"s{number % 4}")


def test_a_session_stays_where_rendezvous_puts_it() -> None:
    names = [f"replica-{at}" for at in range(SPEC.replicas)]
    for served in by_number(played("session", [*in_sessions()])):
        session = f"s{served.number % 4}".encode()
        assert served.replica == rendezvous.rank(session, names)[0]


def test_prefix_hash_goes_by_the_first_chunk() -> None:
    names = [f"replica-{at}" for at in range(SPEC.replicas)]
    requests = [request(number, 3.0 * number, number, 1, 2) for number in range(6)]
    for asked, served in zip(requests, by_number(played("prefix_hash", requests)), strict=True):
        start = asked.prompt.keys()[:KEY_BYTES]
        assert served.replica == rendezvous.choose(start, dict.fromkeys(names, 0))
