"""Requests of LoRA adapters through a router: where they go, and what they share."""

from dataclasses import replace
from typing import Any

import pytest

from pando_fleet.registry.adapter import Adapter, AdapterPlace
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.world import Answer, Replica, RouterClient, completion, serving, until

RATES: dict[str, Any] = {"prefill_tokens_per_s": 10_000.0, "capacity_tokens": 1_000_000}
LONG = "".join(f"{i:07d} " for i in range(512))  # 16 chunks
PIRATE = Adapter(name="pirate", identity="1f" * 16, place=AdapterPlace.DEVICE)
COLD = replace(PIRATE, place=AdapterPlace.HOST)
OTHER_WEIGHTS = replace(PIRATE, identity="2e" * 16)


def holding(*adapters: Adapter, **fields: Any) -> dict[str, Any]:
    slots = {"adapter_slots": 4, "free_adapter_slots": 2, "adapter_load_s": 2.0}
    names = tuple(each.name for each in adapters)
    return RATES | slots | {"adapters": names, "adapter_states": adapters} | fields


async def ask(router: RouterClient, model: str, prompt: str = LONG) -> Answer:
    return await router.post("/v1/completions", completion(prompt, model=model))


def matched(answer: Answer) -> int:
    return int(answer.headers["x-pando-matched-tokens"])


async def test_it_goes_where_its_adapter_is_loaded_and_the_explanation_has_the_seconds(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "cold", **holding(COLD)),
        Replica(valkey_url, "warm", **holding(PIRATE)),
        serving(valkey_url) as router,
    ):
        await router.ready("cold", "warm")
        assert {(await ask(router, "pirate", f"{n}")).replica for n in range(4)} == {"warm"}
        body = completion("hi", model="pirate")
        found = (await router.post("/route/explain?path=/v1/completions", body)).json
        warm, cold = found["candidates"]
        assert (warm["replica"], warm["adapter_load_s"]) == ("warm", 0.0)
        assert (cold["adapter_load_s"], cold["adapter_wait_s"]) == (2.0, 0.0)
        assert cold["cost_s"] > 2.0


async def test_a_placement_that_loads_says_so(valkey_url: str) -> None:
    full = {"free_adapter_slots": 0, "adapter_slot_wait_s": 0.5}
    async with (
        Replica(valkey_url, "a", **holding(COLD, **full)),
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        answer = await ask(router, "pirate")
        path = f"/route/explain?request_id={answer.headers['x-request-id']}"
        reason = (await router.get(path)).json["tries"][0]["reason"]
        words = "500 ms until a slot for its adapter is free, 2 s to load its adapter"
        assert words in reason
        sample = '{adapter="pirate",pool="default"}'
        assert await router.metric(f"pando_router_adapter_requests_total{sample}") == 1
        assert await router.metric(f"pando_router_adapter_loads_total{sample}") == 1


async def test_two_names_of_one_adapter_share_its_cache(valkey_url: str) -> None:
    both = holding(PIRATE, replace(PIRATE, name="corsair"))
    async with Replica(valkey_url, "a", **both), serving(valkey_url) as router:
        await router.ready("a")
        assert matched(await ask(router, "pirate")) == 0
        assert matched(await ask(router, "corsair")) > 1000
        assert matched(await ask(router, "m")) == 0


async def test_other_weights_under_the_same_name_match_nothing_of_the_old(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "a", **holding(PIRATE)) as a,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        await ask(router, "pirate")
        assert matched(await ask(router, "pirate")) > 1000
        await a.say(adapter_states=(OTHER_WEIGHTS,))

        async def known() -> bool:
            pools = (await router.get("/fleet")).json["pools"]["default"]
            return bool(pools[0]["adapter_states"][0]["identity"] == OTHER_WEIGHTS.identity)

        await until(known, "the router knowing the new weights")
        assert matched(await ask(router, "pirate")) == 0
        assert matched(await ask(router, "pirate")) > 1000


async def test_while_weights_are_replaced_requests_go_where_most_replicas_are(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "old", **holding(PIRATE)),
        Replica(valkey_url, "new1", **holding(OTHER_WEIGHTS)),
        Replica(valkey_url, "new2", **holding(OTHER_WEIGHTS)),
        serving(valkey_url) as router,
    ):
        await router.ready("old", "new1", "new2")
        went = {(await ask(router, "pirate", f"{n}")).replica for n in range(6)}
        assert went <= {"new1", "new2"}


@pytest.mark.parametrize("warm", ["a", "b", "c"])
async def test_without_redis_the_last_heartbeats_say_where_it_is_loaded(
    start_valkey: Any, warm: str
) -> None:
    server: RedisServer = start_valkey(port=free_port())
    beats = {name: holding(PIRATE if name == warm else COLD) for name in ("a", "b", "c")}
    async with (
        Replica(server.url, "a", **beats["a"]),
        Replica(server.url, "b", **beats["b"]),
        Replica(server.url, "c", **beats["c"]),
        serving(server.url) as router,
    ):
        await router.ready("a", "b", "c")
        server.stop()

        async def is_away() -> bool:
            return bool((await router.get("/healthz")).json["redis"] == "away")

        await until(is_away, "Redis being away")
        assert {(await ask(router, "pirate", f"{n}")).replica for n in range(6)} == {warm}


async def test_without_redis_and_without_one_that_has_it_an_adapters_requests_gather(
    start_valkey: Any,
) -> None:
    server: RedisServer = start_valkey(port=free_port())
    adapters = [replace(COLD, name=f"n{n}", identity=f"{n:032x}") for n in range(8)]
    async with (
        Replica(server.url, "a", **holding(*adapters)),
        Replica(server.url, "b", **holding(*adapters)),
        serving(server.url) as router,
    ):
        await router.ready("a", "b")
        server.stop()

        async def is_away() -> bool:
            return bool((await router.get("/healthz")).json["redis"] == "away")

        await until(is_away, "Redis being away")
        homes: list[str] = []
        for each in adapters:
            went = {(await ask(router, each.name, f"{n}")).replica for n in range(4)}
            assert len(went) == 1
            homes += went
        assert set(homes) == {"a", "b"}
