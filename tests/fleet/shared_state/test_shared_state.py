"""The shared state against a brute-force model: what routers know is what Redis holds.

Whatever happened, one renewal period later Redis has the leases that the living routers hold,
whole, and nothing else that does not end by itself; sums are those of the parts, and trees have no
gap. As long as no key was lost, they agree at any time.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.examples import examples
from tests.fleet.redis_server import RedisServer
from tests.fleet.shared_state.book import PATHS
from tests.fleet.shared_state.machine import BOOK, SharedState

QUICK = settings(
    max_examples=examples(20), stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
LONG = settings(
    QUICK,
    max_examples=150,
    stateful_step_count=50,
    phases=(Phase.reuse, Phase.generate),  # shrinking takes many minutes
)


def machine_on(server: RedisServer) -> type[SharedState]:
    class OnServer(SharedState):
        url = server.url

    return OnServer


def run_on(server: RedisServer, budget: settings) -> None:
    run_state_machine_as_test(machine_on(server), settings=budget)


@pytest.mark.parametrize("lost", [None, *BOOK])
def test_router_that_dies_before_anyone_mends_what_redis_lost(
    request: pytest.FixtureRequest, redis_url: str, lost: str | None
) -> None:
    """Its leases end by their time; where nothing was lost the others end them."""
    server = request.node.callspec.params["redis_url"]
    state = machine_on(request.getfixturevalue(server))()
    try:
        state.begin(counts=(1, 1, 1), beats=0)
        if lost is not None:
            state.redis_loses(key=lost)
        state.place(count=1, number=0, output=0, path=PATHS[0])
        state.router_dies(number=0)
        assert state.dead[0].is_known == (lost is None)
    finally:
        state.teardown()


def test_redis_holds_what_routers_know(request: pytest.FixtureRequest, redis_url: str) -> None:
    server = request.node.callspec.params["redis_url"]
    run_on(request.getfixturevalue(server), QUICK)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_redis_holds_what_routers_know_after_anything(
    request: pytest.FixtureRequest, redis_url: str
) -> None:
    server = request.node.callspec.params["redis_url"]
    run_on(request.getfixturevalue(server), LONG)
