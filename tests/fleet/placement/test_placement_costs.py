"""A placement's later and indirect costs: for the next requests, for a busy pool, and by
eviction."""

import pytest

from tests.fleet.world import POOL, World, path


async def test_the_next_requests_are_expected_where_requests_are(world: World) -> None:
    await world.beat("a", "b", "c")
    assert {c.coming for c in (await world.terms()).values()} == {1.0}, "nobody is anywhere"
    for replica in ("a", "a", "b"):  # also those that have their first token
        await world.prefilled(await world.place(only=replica))
    coming = {name: terms.coming for name, terms in (await world.terms()).items()}
    assert coming == {"a": 3 / 2, "b": 2 / 2, "c": 1 / 2}


async def test_of_two_replicas_that_hold_nothing_the_one_with_fewer_answers_under_way_wins(
    world: World,
) -> None:
    """Measured rates of equal replicas differ by a few percent, which must not decide."""
    await world.beat("busy", prefill_tokens_per_s=1_100.0)
    await world.beat("idle", prefill_tokens_per_s=1_000.0)
    assert (await world.terms())["busy"].cost_s < (await world.terms())["idle"].cost_s
    for _ in range(3):
        await world.prefilled(await world.place(only="busy"))
    assert (await world.place()).chosen.replica == "idle"


def _work(start: int, end: int, doubling: float) -> float:
    """The work of computing tokens `start` to `end` one at a time."""
    return sum(1 + (token + 1) / doubling for token in range(start, end))


async def test_a_prompt_token_takes_the_longer_the_more_it_sees(world: World) -> None:
    await world.beat("a", "holder", doubling_context=2_000.0)
    prompt = path("held", 80)  # 5,120 tokens
    await world.tree.touch("holder", "1", prompt[: 8 * 60], 10_000)
    terms = await world.terms(prompt, 5_120)
    assert terms["a"].work_s == pytest.approx(_work(0, 5_120, 2_000) / 1_000)
    assert terms["holder"].work_s == pytest.approx(_work(3_840, 5_120, 2_000) / 1_000)
    await world.place(prompt, 5_120, only="a")
    for _ in range(5):
        await world.place(prompt_tokens=1_024, only="holder")
    terms = await world.terms(prompt, 5_120)
    assert terms["a"].wait_s == pytest.approx(_work(0, 5_120, 2_000) / 1_000)
    assert terms["holder"].wait_s == pytest.approx(5 * _work(0, 1_024, 2_000) / 1_000)
    assert terms["a"].wait_s > 1.5 * terms["holder"].wait_s, "as many tokens"


async def test_a_replica_that_computes_long_prompts_is_not_taken_for_a_slow_one(
    world: World,
) -> None:
    """1,000 tokens/s at the start of prompts equal 500 tokens/s that see 2,000 tokens each."""
    await world.beat("short", doubling_context=2_000.0, prefill_tokens_per_s=1_000.0)
    slow = {"prefill_tokens_per_s": 500.0, "prefill_context_per_s": 1e6}
    await world.beat("long", doubling_context=2_000.0, **slow)
    terms = await world.terms()
    assert terms["long"].work_s == pytest.approx(terms["short"].work_s)


async def test_what_context_costs_is_asked_of_others_until_a_replica_knows(world: World) -> None:
    await world.beat("new", "old")
    assert (await world.terms(prompt_tokens=5_000))["new"].work_s == 5.0, "all take the same"
    await world.beat("old", doubling_context=2_000.0)
    terms = await world.terms(prompt_tokens=5_000)
    assert terms["new"].work_s == pytest.approx(_work(0, 5_000, 2_000) / 1_000)


async def test_what_a_replica_has_computed_of_waiting_prompts_is_no_backlog(world: World) -> None:
    await world.beat("a", "b", doubling_context=2_000.0)
    for replica in ("a", "b"):
        await world.place(prompt_tokens=9_000, only=replica)
    context = sum(range(1, 4_001))
    await world.beat("b", doubling_context=2_000.0, begun_tokens=4_000, begun_context=context)
    terms = await world.terms()
    assert terms["a"].wait_s == pytest.approx(_work(0, 9_000, 2_000) / 1_000)
    assert terms["b"].wait_s == pytest.approx(_work(4_000, 9_000, 2_000) / 1_000)
    assert terms["b"].backlog_tokens == pytest.approx(1_000 * terms["b"].wait_s, abs=1)
    assert terms["b"].queue == 1, "its first token is still to come"


async def test_a_report_of_a_prompt_that_has_ended_makes_no_backlog_negative(world: World) -> None:
    """Until the next heartbeat a replica has begun what is no lease's any more."""
    await world.beat("a", begun_tokens=50_000, begun_context=0)
    await world.place(prompt_tokens=9_000, only="a")
    assert (await world.terms())["a"].wait_s == 0.0


async def test_where_requests_wait_at_each_replica_work_is_missing_for_all(world: World) -> None:
    await world.beat("a", "b")
    await world.beat("fast", prefill_tokens_per_s=2_000.0)
    for replica in ("a", "a", "a", "b", "b"):
        await world.place(only=replica)
    idle = await world.terms()
    assert {terms.pool_s for terms in idle.values()} == {0.0}, "one can take what comes"
    await world.place(only="fast")
    busy = await world.terms()
    # At least one waits, two on average; 1,000 tokens at an average of 4,000 / 3 per second.
    assert [t.pool_s for t in busy.values()] == [pytest.approx(1 * (1 + 2) * 0.75)] * 3
    await world.place(only="fast")
    busy = await world.terms()
    assert busy["a"].pool_s == pytest.approx(2 * (1 + 7 / 3) * 0.75)
    fast = busy["fast"]
    who = 1 + fast.queue + fast.coming
    assert fast.cost_s == pytest.approx(fast.wait_s + fast.work_s * who + fast.pool_s)


async def test_a_busy_pool_waits_longer_for_a_prefix_than_computing_it_takes(world: World) -> None:
    """Hits are extra capacity for a pool without spare capacity."""
    prompt = path("held", 80)  # 5,120 tokens
    await world.beat("holder", "other", "third")
    await world.tree.touch("holder", "1", prompt, 10_000)
    for replica in ("holder", "holder", "other", "other"):
        await world.place(prompt_tokens=9_000 if replica == "holder" else 1, only=replica)
    calm = await world.terms(prompt, 5_120)
    assert min(calm.values(), key=lambda terms: terms.cost_s).replica == "third"
    await world.place(prompt_tokens=1, only="third")
    busy = await world.terms(prompt, 5_120)
    assert busy["holder"].wait_s > busy["third"].wait_s + busy["third"].work_s * 3
    assert min(busy.values(), key=lambda terms: terms.cost_s).replica == "holder"


async def _with_leaf(world: World, replica: str, **fields: float) -> None:
    """Fill its cache with unused prefixes that were just touched."""
    await world.tree.touch(replica, "1", path(replica, 4), 10_000)
    await world.beat(replica, capacity_tokens=50_000, cached_tokens=50_000, **fields)


async def test_what_is_evicted_costs_what_computing_it_again_takes_if_it_is_asked_for(
    world: World,
) -> None:
    for replica in ("old", "middle", "young"):
        await _with_leaf(world, replica)
        world.now_ms += 20_000
    await world.beat("old", "middle", "young", capacity_tokens=50_000, cached_tokens=50_000)
    terms = await world.terms()
    # Ages of 60, 40 and 20 s, 40 on average; 1,000 prompt and 100 output tokens are evicted, and
    # to compute them again delays one more request.
    assert terms["old"].evict_s == pytest.approx(2 * 1.1 * 40 / (60 + 40))
    assert terms["middle"].evict_s == pytest.approx(2 * 1.1 / 2)
    assert terms["young"].evict_s == pytest.approx(2 * 1.1 * 40 / (20 + 40))
    assert terms["old"].cost_s == pytest.approx(1.0 * (1 + 1) + terms["old"].evict_s)
    assert (await world.place()).chosen.replica == "old"


async def test_what_is_evicted_takes_as_long_as_prompts_do_in_the_pool(world: World) -> None:
    """For any replica that evicts it, as it is unknown which one will compute it again."""
    await _with_leaf(world, "short", prefill_tokens_per_s=1_500.0, doubling_context=1_000.0)
    slow = {"prefill_tokens_per_s": 500.0, "prefill_context_per_s": 1e6}
    await _with_leaf(world, "long", doubling_context=1_000.0, **slow)
    world.now_ms += 1_000
    terms = await world.terms()
    assert [t.evict_s for t in terms.values()] == [pytest.approx(2 * 1.1 / 2)] * 2, "1,000 a second"


async def test_only_what_has_no_free_room_evicts(world: World) -> None:
    await _with_leaf(world, "full")
    await _with_leaf(world, "free")
    await world.beat("free", capacity_tokens=50_000, cached_tokens=30_000, pinned_tokens=19_500)
    terms = await world.terms()
    assert terms["full"].evict_s == pytest.approx(2 * 1.1 / 2)
    assert terms["free"].evict_s == pytest.approx(2 * 0.6 / 2)  # of 1,100 tokens 500 have room
    more = await world.terms(prompt_tokens=60_000)
    assert more["free"].evict_s == pytest.approx(2 * 30.0 / 2), "no more than is cached"


async def test_what_waiting_requests_evict_is_gone_anyway(world: World) -> None:
    await _with_leaf(world, "full")
    await _with_leaf(world, "free")
    await world.beat("free", capacity_tokens=50_000, cached_tokens=30_000)
    await world.place(prompt_tokens=20_000, output_tokens=0, only="free")  # takes what is free
    await world.place(prompt_tokens=30_000, output_tokens=0, only="full")
    terms = await world.terms()
    # A request waits at each, so computing it again delays two more.
    assert terms["full"].evict_s == pytest.approx(3 * 1.1 / 2), "of its own tokens, not 30,000 more"
    assert terms["free"].evict_s == pytest.approx(3 * 1.1 / 2)
    await world.place(prompt_tokens=19_500, output_tokens=0, only="full")
    some = await world.terms()
    assert some["full"].evict_s == pytest.approx(3.5 * 0.5 / 2), "the rest has no room"
    assert some["full"].kv_wait_s > 0
    await world.place(prompt_tokens=1_000, output_tokens=0, only="full")
    nothing = await world.terms()
    assert nothing["full"].evict_s == 0.0, "no cache is left to evict"


async def test_to_compute_again_what_is_evicted_delays_those_that_wait(world: World) -> None:
    await _with_leaf(world, "full")
    await world.beat("other")
    calm = await world.terms()
    assert calm["full"].evict_s == pytest.approx(2 * 1.1 / 2)
    for _ in range(4):
        await world.place(prompt_tokens=1, output_tokens=0, only="other")
    busy = await world.terms()
    assert busy["full"].evict_s == pytest.approx((2 + 4 / 2) * 1.1 / 2), "two on average"


async def test_a_replica_that_holds_nothing_evicts_nothing(world: World) -> None:
    await world.beat("new")
    await world.beat("engine", capacity_tokens=0)  # it does not report its room
    await _with_leaf(world, "full")
    terms = await world.terms()
    assert (terms["new"].evict_s, terms["engine"].evict_s) == (0.0, 0.0)
    assert terms["full"].evict_s > 0


async def test_an_older_cache_outweighs_a_marginally_faster_replica(world: World) -> None:
    """Otherwise all new prompts go to the faster one, whose cache churns while the other's
    idles."""
    await _with_leaf(world, "slower", prefill_tokens_per_s=1_000.0)
    world.now_ms += 60_000
    await _with_leaf(world, "faster", prefill_tokens_per_s=1_100.0)
    world.now_ms += 1_000
    await world.beat("slower", capacity_tokens=50_000, cached_tokens=50_000)
    assert (await world.place()).chosen.replica == "slower"


async def test_a_heartbeat_does_not_fail_of_a_tree_that_is_none(world: World) -> None:
    await world.redis.set(f"pando:{{{POOL}}}:tree:1:a", "what no tree is")
    await world.beat("a")
    (replica,) = await world.registry.replicas(POOL)
    assert replica.beat.replica == "a"
