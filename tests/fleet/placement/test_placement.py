"""A prompt's placement: the lowest delay for itself and for the requests behind it."""

import asyncio
from collections import Counter

import pytest

from pando_fleet.placement.placer import Ask, NoReplica, Placer
from pando_fleet.redis.client import FleetError, connect
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.replica import ReplicaState
from tests.fleet.world import POOL, World, path

LONG = path("a long document", 100)  # 6,400 tokens at 4 bytes each


async def _tree_of(world: World, replica: str, keys: bytes) -> None:
    await world.tree.touch(replica, "1", keys, 10_000)


async def test_an_idle_pool_gives_the_prompt_to_the_fastest_replica(world: World) -> None:
    await world.beat("slow", prefill_tokens_per_s=1_000.0)
    await world.beat("fast", prefill_tokens_per_s=3_000.0)
    placed = await world.place()
    assert placed.chosen.replica == "fast"
    assert placed.chosen.url == "http://fast:8000"
    assert placed.chosen.work_s == pytest.approx(1_000 / 3_000)


async def test_the_replica_that_holds_the_prefix_wins_where_that_saves_time(world: World) -> None:
    await world.beat("fast", prefill_tokens_per_s=2_000.0)
    await world.beat("holder", prefill_tokens_per_s=1_000.0)
    await _tree_of(world, "holder", LONG[: 8 * 60])  # 3,840 of 6,400 tokens
    chosen = (await world.place(LONG, 6_400)).chosen
    assert (chosen.replica, chosen.matched_chunks, chosen.matched_tokens) == ("holder", 60, 3_840)
    assert chosen.work_s == pytest.approx(2.56)


async def test_recomputing_on_a_faster_replica_wins_where_the_prefix_saves_little(
    world: World,
) -> None:
    await world.beat("fast", prefill_tokens_per_s=2_000.0)
    await world.beat("holder", prefill_tokens_per_s=1_000.0)
    await _tree_of(world, "holder", LONG[: 8 * 40])  # 2,560: 3.84 s there, 3.2 s on the faster one
    assert (await world.place(LONG, 6_400)).chosen.replica == "fast"


async def test_the_holder_loses_once_its_backlog_costs_more_than_recomputing(world: World) -> None:
    await world.beat("holder", "other")
    await _tree_of(world, "holder", LONG)
    # One request waits at the holder, so two of the next three will: of one each, 4/3 and 2/3.
    long = await world.place(prompt_tokens=10_600, only="holder")
    terms = await world.terms(LONG, 6_400)
    assert terms["holder"].cost_s == pytest.approx(10.6 + 0.001 * (1 + 1 + 4 / 3))
    assert terms["other"].cost_s == pytest.approx(6.4 * (1 + 2 / 3))
    assert (await world.place(LONG, 6_400)).chosen.replica == "holder"
    await world.release(long)
    await world.place(prompt_tokens=10_800, only="holder")
    assert (await world.place(LONG, 6_400)).chosen.replica == "other"


async def test_requests_that_wait_at_a_replica_make_recomputing_there_dearer(world: World) -> None:
    """The same prompt and backlog at the holder; only the requests waiting at the other differ."""
    await world.beat("holder", "other")
    await _tree_of(world, "holder", LONG)
    await world.place(prompt_tokens=11_000, only="holder")  # costs more than recomputing 6.4 s
    calm = await world.terms(LONG, 6_400)
    assert (calm["other"].queue, calm["holder"].queue) == (0, 1)
    for _ in range(3):
        await world.place(prompt_tokens=1, only="other")
    busy = await world.terms(LONG, 6_400)
    assert (busy["other"].queue, busy["holder"].queue) == (3, 1)
    for terms in (calm, busy):
        other = terms["other"]
        who = 1 + other.queue + other.coming
        assert other.cost_s == pytest.approx(other.wait_s + 6.4 * who + other.pool_s)
    assert calm["holder"].cost_s > calm["other"].cost_s
    assert busy["holder"].cost_s < busy["other"].cost_s


async def test_a_full_replica_costs_the_time_until_it_has_released_enough(world: World) -> None:
    await world.beat(
        "full", capacity_tokens=10_000, pinned_tokens=9_500, release_tokens_per_s=250.0
    )
    await world.beat("roomy", capacity_tokens=100_000, pinned_tokens=90_000)
    full, roomy = (await world.terms())["full"], (await world.terms())["roomy"]
    # 9,500 pinned + 1,000 prompt + 100 output are 600 above 10,000.
    assert full.kv_wait_s == pytest.approx(600 / 250)
    assert roomy.kv_wait_s == 0.0
    assert full.cost_s == pytest.approx(2.4 + 1.0 * (1 + full.coming))


async def test_room_that_waiting_leases_will_need_counts_until_their_first_token(
    world: World,
) -> None:
    await world.beat("r", capacity_tokens=2_000, release_tokens_per_s=100.0)
    first = await world.place(prompt_tokens=1_500, output_tokens=300)
    waiting = (await world.terms())["r"]
    assert waiting.kv_wait_s == pytest.approx((1_500 + 300 + 1_100 - 2_000) / 100)
    await world.prefilled(first)
    assert (await world.terms())["r"].kv_wait_s == 0.0  # from now on its heartbeat reports it


async def test_a_replica_that_measured_no_release_is_believed_to_release_what_it_decodes(
    world: World,
) -> None:
    await world.beat("r", capacity_tokens=1_000, release_tokens_per_s=0.0, decode_tokens_per_s=50.0)
    assert (await world.terms())["r"].kv_wait_s == pytest.approx(100 / 50)


async def test_a_replica_that_measured_nothing_is_taken_for_an_average_one(world: World) -> None:
    nothing = {"prefill_tokens_per_s": 0.0, "decode_tokens_per_s": 0.0, "release_tokens_per_s": 0.0}
    await world.beat("new", capacity_tokens=1_000, **nothing)
    assert (await world.terms())["new"].work_s == pytest.approx(1.0)  # no replica has measured
    assert (await world.terms())["new"].kv_wait_s == pytest.approx(100 / 100)
    await world.beat("a", prefill_tokens_per_s=2_000.0, release_tokens_per_s=300.0)
    await world.beat("b", prefill_tokens_per_s=6_000.0, release_tokens_per_s=500.0)
    assert (await world.terms())["new"].work_s == pytest.approx(1_000 / 4_000)
    assert (await world.terms())["new"].kv_wait_s == pytest.approx(100 / 400)


async def test_matched_tokens_follow_each_replicas_own_bytes_per_token(world: World) -> None:
    await world.beat("a", bytes_per_token=4.0)
    await world.beat("b", bytes_per_token=2.5)
    for replica in ("a", "b"):
        await _tree_of(world, replica, LONG[: 8 * 3])
    terms = await world.terms(LONG, 6_400)
    assert terms["a"].matched_tokens == 3 * 256 // 4
    assert terms["b"].matched_tokens == int(3 * 256 / 2.5)


async def test_the_last_prompt_token_is_never_cached(world: World) -> None:
    await world.beat("a")
    await _tree_of(world, "a", LONG)
    chosen = (await world.place(LONG, 5_000)).chosen
    assert chosen.matched_tokens == 4_999
    assert chosen.work_s == pytest.approx(1 / 1_000)


async def test_a_prompt_that_no_replica_can_hold_is_placed_for_the_worker_to_refuse(
    world: World,
) -> None:
    await world.beat("a", capacity_tokens=1_000, max_request_tokens=500)
    assert (await world.place(prompt_tokens=50_000)).chosen.replica == "a"


async def test_equal_replicas_share_and_no_name_is_favoured(world: World) -> None:
    names = ["a", "b", "c", "d"]
    await world.beat(*names)
    first: Counter[str] = Counter()
    for _ in range(120):
        placed = await world.place(prompt_tokens=10)
        first[placed.chosen.replica] += 1
        await world.release(placed)
    assert set(first) == set(names)
    assert max(first.values()) < 55, first


async def test_among_equal_costs_the_replica_with_the_fewest_requests_wins(world: World) -> None:
    await world.beat("a", "b", "c")
    for replica in ("a", "a", "b", "c", "c"):  # prefilled: no backlog, equal costs
        await world.prefilled(await world.place(only=replica))
    for _ in range(8):
        assert (await world.placer.explain(world.ask()))[0].replica == "b"
    assert (await world.place()).chosen.replica == "b"


@pytest.mark.parametrize("state", [ReplicaState.STARTING, ReplicaState.DRAINING])
async def test_a_replica_that_is_not_ready_gets_nothing(world: World, state: ReplicaState) -> None:
    await world.beat("a", "b")
    await world.beat("a", state=state)
    assert list(await world.terms()) == ["b"]
    with pytest.raises(NoReplica):
        await world.place(only="a")
    await world.beat("a")
    assert (await world.place(only="a")).chosen.replica == "a"


async def test_a_replica_that_fell_silent_gets_nothing(world: World) -> None:
    await world.beat("silent", prefill_tokens_per_s=9_000.0)
    world.now_ms += FRESH_MS
    await world.beat("alive")
    assert set(await world.terms()) == {"silent", "alive"}
    world.now_ms += 1
    assert set(await world.terms()) == {"alive"}
    assert (await world.place()).chosen.replica == "alive"


async def test_replicas_that_failed_this_request_are_left_out(world: World) -> None:
    await world.beat("a", "b", "c")
    assert (await world.place(exclude=("a", "c"))).chosen.replica == "b"
    with pytest.raises(NoReplica, match="'llama'"):
        await world.place(exclude=("a", "b", "c"))


async def test_an_unknown_pool_has_no_replica(world: World) -> None:
    with pytest.raises(NoReplica):
        await world.place()
    assert await world.terms() == {}


async def test_explaining_reserves_and_touches_nothing(world: World) -> None:
    await world.beat("a")
    before = sorted(map(bytes, await world.redis.keys()))  # type: ignore[arg-type]
    await world.terms(LONG, 6_400)
    assert sorted(map(bytes, await world.redis.keys())) == before  # type: ignore[arg-type]
    assert (await world.terms(LONG, 6_400))["a"].outstanding == 0


async def test_the_second_turn_goes_where_the_first_one_was(world: World) -> None:
    await world.beat("a", "b", "c")
    first = await world.place(path("conversation", 10), 700)
    await world.release(first)
    second = await world.place(path("conversation", 10) + path("more", 5), 1_000)
    assert second.chosen.replica == first.chosen.replica
    assert second.chosen.matched_chunks == 10


async def test_a_tree_never_grows_beyond_what_the_kv_pool_holds(world: World) -> None:
    await world.beat("a", capacity_tokens=640, bytes_per_token=4.0)  # ten chunks
    for text in ("one", "two", "three"):
        await world.place(path(text, 6), 400)
        world.now_ms += 1_000
    assert await world.tree.size("a", "1") == 10
    assert await world.tree.match("a", "1", path("three", 6)) == 6
    assert await world.tree.match("a", "1", path("one", 6)) == 0


async def test_a_cut_placement_is_not_matched_again(world: World) -> None:
    await world.beat("a")
    placed = await world.place(LONG, 6_400)
    world.placer.cut(placed, LONG, 7)
    await world.placer.flush()
    assert (await world.terms(LONG, 6_400))["a"].matched_chunks == 7


async def test_a_restarted_replica_starts_with_no_tree_and_no_leases(world: World) -> None:
    await world.beat("a", incarnation="1")
    await world.place(LONG, 6_400)
    await world.beat("a", incarnation="2")
    terms = (await world.terms(LONG, 6_400))["a"]
    assert (terms.incarnation, terms.matched_chunks, terms.backlog_tokens) == ("2", 0, 0)


async def test_two_routers_placing_at_once_spread_requests_exactly_as_one_would(
    redis_url: str,
) -> None:
    prompt = path("system prompt", 20)
    spread = []
    for routers in (1, 2):
        async with World.open(redis_url) as world:
            clients = [connect(redis_url) for _ in range(routers)]
            wires = [Wire(client) for client in clients]
            placers = [Placer(wire, POOL, world.clock, every_s=None) for wire in wires]
            await world.beat("a", "b", "c", "d")
            placed = []
            for turn in range(15):
                asks = [world.ask(prompt, 3_000, lease=f"{turn}-{i}") for i in range(4)]
                placed += await asyncio.gather(
                    *(placers[i % routers].place(ask) for i, ask in enumerate(asks))
                )
                for placer in placers:
                    await placer.flush()
            terms = await world.terms()
            per_replica = Counter(p.chosen.replica for p in placed)
            assert per_replica == {name: t.outstanding for name, t in terms.items()}
            spread.append(sorted((t.outstanding, t.backlog_tokens) for t in terms.values()))
            for wire, client in zip(wires, clients, strict=True):
                await wire.aclose()
                await client.aclose()
    assert spread[0] == spread[1]
    assert sum(outstanding for outstanding, _ in spread[0]) == 60
    assert spread[0][0][0] > 0, "the prompts are long enough to need every replica"


@pytest.mark.parametrize(
    "fields",
    [{"keys": b"1234567"}, {"prompt_tokens": 0}, {"output_tokens": -1}, {"lease": ""}],
)
def test_an_ask_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    sane = {"keys": b"", "prompt_tokens": 1, "output_tokens": 0, "lease": "l", "lease_ms": 1}
    with pytest.raises(FleetError):
        Ask(**{**sane, **fields})  # type: ignore[arg-type]


async def test_a_replica_that_does_not_report_its_room_still_has_a_tree(world: World) -> None:
    await world.beat("engine", capacity_tokens=0)
    await world.place(LONG, 6_400)
    assert (await world.terms(LONG, 6_400))["engine"].matched_chunks == 100
