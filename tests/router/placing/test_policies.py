"""Policies: which replica each picks, which requests may choose one, and that all hold leases."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_router.configuration.live import Live
from pando_router.configuration.settings import PolicyName, RouterSettings
from pando_router.core.in_flight import InFlight
from pando_router.endpoints import ENDPOINTS
from pando_router.fleet_view.advance import advance
from pando_router.fleet_view.models import Models
from pando_router.fleet_view.snapshot import Fleet, Member
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.route import Prompt, resolve
from pando_router.placing.steering import Steering
from pando_router.policies import POLICIES
from pando_router.policies.loads import Loads
from tests.router import world
from tests.router.world import Stream, chat, completion, serving, until

NAMES = [f"r{i}" for i in range(8)]


class Pool:
    """A pool of fictitious replicas, with `running` requests each, and its policies."""

    def __init__(self, running: dict[str, int], age_ms: int = 0) -> None:
        beats = [
            Heartbeat(
                replica=name,
                incarnation=f"i-{name}",
                url="http://x",
                model="m",
                state=ReplicaState.READY,
                running=count,
            )
            for name, count in running.items()
        ]
        self.fleet = advance(Fleet(), 0.0, {"default": [Replica(beat, age_ms) for beat in beats]})
        self.in_flight = InFlight()
        self.policies = PoolPolicies(
            Live(RouterSettings()), Loads(self.in_flight), random.Random(1)
        )

    @property
    def members(self) -> tuple[Member, ...]:
        return self.fleet.pools["default"]

    def prompt(self, text: str = "x", session: bytes = b"") -> Prompt:
        body = json.dumps(completion(text)).encode()
        path, models = "/v1/completions", Models(self.fleet, {})
        return resolve(ENDPOINTS[path].parse(body), models, path, Steering(session=session))

    def pick(self, policy: PolicyName, prompt: Prompt, members: Sequence[Member] = ()) -> str:
        picked = self.policies.of("default", policy).pick(prompt, members or self.members)
        assert picked is not None
        return picked.beat.replica


def test_power_of_two_spares_the_busiest_and_uses_all_others() -> None:
    pool = Pool({name: index for index, name in enumerate(NAMES)})
    picked = Counter(pool.pick("power_of_two", pool.prompt()) for _ in range(2_000))
    # The k-th busiest of 8 wins k of 28 pairs, counting from 0: the idlest 7, the busiest none.
    assert picked[NAMES[-1]] == 0
    for index, name in enumerate(NAMES[:-1]):
        assert picked[name] == pytest.approx(2_000 * (7 - index) / 28, abs=80)


def test_power_of_two_on_a_lone_replica_takes_it() -> None:
    pool = Pool({"a": 3})
    assert pool.pick("power_of_two", pool.prompt()) == "a"


@pytest.mark.parametrize("policy", ["least_loaded", "power_of_two"])
def test_load_is_the_larger_of_heartbeat_and_own_requests(policy: PolicyName) -> None:
    pool = Pool({"a": 2, "b": 3})
    assert pool.pick(policy, pool.prompt()) == "a"
    for _ in range(4):
        pool.in_flight.started("i-a")  # not in a heartbeat yet
    assert pool.pick(policy, pool.prompt()) == "b"


def test_own_requests_are_the_load_while_no_heartbeats_come() -> None:
    pool = Pool({"a": 0, "b": 50}, age_ms=60_000)
    pool.in_flight.started("i-a")
    assert pool.pick("least_loaded", pool.prompt()) == "b"


def test_prefix_hash_keeps_equal_starts_together_within_the_bound() -> None:
    pool = Pool(dict.fromkeys(NAMES, 0))
    start = "s" * 300
    home = pool.pick("prefix_hash", pool.prompt(start + "one"))
    assert {pool.pick("prefix_hash", pool.prompt(start + f"{i}")) for i in range(20)} == {home}
    sent: Counter[str] = Counter()
    for _ in range(800):
        name = pool.pick("prefix_hash", pool.prompt(start))
        sent[name] += 1
        pool.in_flight.started(f"i-{name}")
    assert sum(sent.values()) / len(NAMES) * 1.25 + 1 >= max(sent.values())


def test_prefix_hash_spreads_different_starts() -> None:
    pool = Pool(dict.fromkeys(NAMES, 0))
    homes = Counter(pool.pick("prefix_hash", pool.prompt(f"{i} is first")) for i in range(800))
    assert len(homes) == len(NAMES)
    assert max(homes.values()) < 2 * 100


def test_session_that_loses_its_replica_moves_and_no_other() -> None:
    pool = Pool(dict.fromkeys(NAMES, 0))
    prompts = [pool.prompt(session=b"s%d" % i) for i in range(400)]
    before = [pool.pick("session", prompt) for prompt in prompts]
    assert set(before) == set(NAMES)
    left = [member for member in pool.members if member.beat.replica != "r3"]
    for home, prompt in zip(before, prompts, strict=True):
        now = pool.pick("session", prompt, left)
        assert now != "r3"
        assert now == home or home == "r3"


async def test_session_goes_by_header_or_user_to_one_replica(valkey_url: str) -> None:
    async with (
        world.Replica(valkey_url, "a"),
        world.Replica(valkey_url, "b"),
        world.Replica(valkey_url, "c"),
        serving(valkey_url, policy="session") as router,
    ):
        await router.ready("a", "b", "c")

        async def homes(number: int) -> set[str]:
            name = f"session-{number}"
            texts = [f"{number} {turn} " * 100 for turn in range(3)]
            by_header = [
                await router.post("/v1/completions", completion(text), **{"x-session-id": name})
                for text in texts
            ]
            by_user = [
                await router.post("/v1/completions", completion(text, user=name)) for text in texts
            ]
            message = {**chat("hi"), "metadata": {"user_id": name}}
            by_metadata = await router.post("/v1/messages", message)
            return {answer.replica for answer in (*by_header, *by_user, by_metadata)}

        found = [await homes(number) for number in range(12)]
        assert all(len(one) == 1 for one in found)
        assert set().union(*found) == {"a", "b", "c"}
        # Without a session the shared placement decides, which keeps a prefix in its place.
        text = "no session " * 100
        first = await router.post("/v1/completions", completion(text))
        for _ in range(3):
            again = await router.post("/v1/completions", completion(text))
            assert again.replica == first.replica


async def test_each_pool_has_its_own_policy(valkey_url: str) -> None:
    async with (
        world.Replica(valkey_url, "a", model="x", pool="one"),
        world.Replica(valkey_url, "b", model="x", pool="one"),
        world.Replica(valkey_url, "c", model="y", pool="two"),
        serving(valkey_url, pool_policies="one=round_robin") as router,
    ):
        await router.ready("a", "b", "c")
        for _ in range(2):
            for replica in ("a", "b"):
                answer = await router.post("/v1/completions", {"model": "x", "prompt": "hi"})
                assert answer.replica == replica
        await router.post("/v1/completions", {"model": "y", "prompt": "hi"})
        sample = 'pando_router_placements_total{{outcome="shared",policy="{}"}}'
        assert await router.metric(sample.format("round_robin")) == 4
        assert await router.metric(sample.format("cache_aware")) == 1


async def test_request_chooses_its_policy_only_where_that_is_allowed(valkey_url: str) -> None:
    async with world.Replica(valkey_url, "a"), world.Replica(valkey_url, "b"):
        async with serving(valkey_url, allow_policy_header=True) as router:
            await router.ready("a", "b")
            wish = {"x-pando-policy": "round_robin"}
            order = [
                (await router.post("/v1/completions", completion("hi" * 500), **wish)).replica
                for _ in range(4)
            ]
            assert order == ["a", "b", "a", "b"]
            bad = await router.post("/v1/completions", completion(), **{"x-pando-policy": "best"})
            assert bad.status == 400
            assert bad.json["error"]["param"] == "x-pando-policy"
            assert "round_robin" in bad.json["error"]["message"]
        async with serving(valkey_url) as router:
            await router.ready("a", "b")
            refused = await router.post("/v1/completions", completion(), **wish)
            assert refused.status == 403


@pytest.mark.parametrize("policy", list(POLICIES))
async def test_every_policy_holds_a_lease_while_its_request_runs(
    valkey_url: str, policy: PolicyName
) -> None:
    async with (
        world.Replica(valkey_url, "a") as a,
        serving(valkey_url, policy=policy) as router,
    ):
        await router.ready("a")
        a.answer = stream = Stream()

        async def leased() -> int:
            path = "/route/explain?path=/v1/completions"
            (candidate,) = (await router.post(path, completion())).json["candidates"]
            return int(candidate["outstanding"])

        body = completion(user="somebody")
        request = asyncio.create_task(router.post("/v1/completions", body))
        await until(lambda: a.received, "the request at the replica")
        assert await leased() == 1
        stream.end()
        await request

        async def released() -> bool:
            return await leased() == 0

        await until(released, "the lease released")
