"""Sessions in the pool's memory: which of them go on, and which wait for room.

The replica holds 100,000 tokens and computes 1,000 a second, so a session's memory is worth a pause
of 100 s.
"""

from math import exp
from typing import Any

import pytest

from pando_fleet.placement.placer import Placement, Placer, PoolCrowded
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout import lua
from pando_fleet.redis.layout.rows import WORKING_SET, Crowded, WorkingSetRow
from pando_fleet.redis.wire import Wire
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import POOL, World, path

CHUNK_TOKENS = 64


async def call(world: World, name: str, tokens: int, **fields: Any) -> Placement:
    """A call of the session `name`, whose prompt has about so many tokens, in whole chunks."""
    chunks = tokens // CHUNK_TOKENS
    values: dict[str, Any] = {"bounds_sessions": True, "output_tokens": 0, **fields}
    return await world.place(path(name, chunks), CHUNK_TOKENS * chunks, **values)


async def crowded(world: World, name: str, tokens: int) -> Crowded:
    with pytest.raises(PoolCrowded) as refused:
        await call(world, name, tokens)
    return refused.value.crowded


async def ended(world: World, name: str, tokens: int, **fields: Any) -> None:
    """A call that has ended; the working set is counted anew afterwards."""
    await world.release(await call(world, name, tokens, **fields))
    await after(world, 0.3)


async def noted(world: World) -> WorkingSetRow:
    row: Any = await world.redis.hget(PoolKeys(POOL).sessions, "")
    found, _ = WORKING_SET.unpack(row)
    return found


async def working_set(world: World) -> float:
    """In tokens, as of now."""
    await call(world, "looks", 512, may_wait=False)
    return (await noted(world)).held


async def weight_of_a_new_session(world: World, name: str) -> float:
    """By token, from 0 to 1."""
    before = await working_set(world)
    await world.release(await call(world, name, 6_400, may_wait=False))
    return ((await noted(world)).held - before) / 6_400


async def keep_busy(world: World) -> None:
    """A prompt that is no session waits for its first token for an hour."""
    await world.place(path("short", 1), CHUNK_TOKENS, lease_ms=3_600_000)


async def three_fill_the_pool(world: World) -> None:
    """Sessions named "one", "two" and "three", at a replica without time to spare."""
    await world.beat("a")
    await keep_busy(world)
    for name in ("one", "two", "three"):
        await ended(world, name, 30_000)
    await after(world, 2)  # trees count in seconds


async def after(world: World, seconds: float) -> None:
    """Later, when the replica has sent another heartbeat."""
    world.now_ms += int(1000 * seconds)
    await world.beat("a")


async def test_sessions_are_placed_until_their_tokens_fill_the_pool(world: World) -> None:
    await world.beat("a")
    for name in ("one", "two", "three"):
        await call(world, name, 32_000)
    found = await crowded(world, "four", 32_000)
    assert (found.working_set_tokens, found.room_tokens) == (96_000, 100_000)
    assert (found.active, found.is_back) == (3, False)
    await call(world, "small", 3_000)  # it fits


async def test_a_call_that_extends_a_session_goes_on_and_counts_once(world: World) -> None:
    await world.beat("a")
    for name in ("one", "two", "three"):
        await ended(world, name, 25_000)
    for tokens in (30_000, 34_000, 50_000):
        await ended(world, "one", tokens)  # beyond the pool's memory: it runs
    found = await crowded(world, "four", 10_000)
    assert found.working_set_tokens == pytest.approx(50_000 + 2 * 25_000, rel=0.04)


async def test_what_sessions_share_counts_once(world: World) -> None:
    await world.beat("a")
    tools = path("tools", 500)
    first, second = (tools + path(name, 1_000)[: 8 * 500] for name in ("one", "two"))
    for keys in (first, second):
        await world.place(keys, 64_000, bounds_sessions=True, output_tokens=0)
    found = await crowded(world, "three", 32_000)
    assert found.working_set_tokens == 64_000 + 32_000


async def test_a_session_goes_on_while_its_conversation_is_held_however_long_it_paused(
    world: World,
) -> None:
    await world.beat("a")
    await keep_busy(world)
    await ended(world, "one", 45_000)
    await after(world, 300)
    await call(world, "two", 55_000)  # both are held, and more than the memory is needed
    assert (await crowded(world, "new", 40_000)).active == 1
    await call(world, "one", 46_000)


async def test_a_session_whose_conversation_was_evicted_waits_however_short_its_pause(
    world: World,
) -> None:
    """Three sessions have grown beyond the memory; two of them fit, and go on."""
    await three_fill_the_pool(world)
    for name in ("one", "two"):
        await ended(world, name, 50_000)
    found = await crowded(world, "three", 31_000)
    assert (found.active, found.is_back) == (3, True)
    for name in ("one", "two"):
        await ended(world, name, 51_000)
    await after(world, 200)
    await call(world, "three", 31_000)  # the others' shares have fallen to a third


async def test_new_sessions_wait_while_one_that_returns_does_also_where_they_would_fit(
    world: World,
) -> None:
    """Until nobody asks for it any more."""
    await three_fill_the_pool(world)
    await call(world, "one", 50_000, lease_ms=3_600_000)
    await call(world, "two", 44_000, lease_ms=3_600_000)
    await after(world, 900)  # so the third one counts little
    await ended(world, "fits", 640)
    for _ in range(3):
        found = await crowded(world, "three", 31_000)
        assert (found.is_back, found.is_behind) == (True, False)
        world.now_ms += 900
        found = await crowded(world, "small", 640)
        assert (found.is_back, found.is_behind) == (False, True)
        assert found.working_set_tokens + 640 < found.room_tokens
    await call(world, "two", 44_600)  # one that runs passes
    world.now_ms += 100
    await call(world, "small", 640)


async def test_a_session_has_returned_when_its_call_begins_to_wait(world: World) -> None:
    """However long it waits for room then, and however often it asks."""
    await world.beat("a")
    await keep_busy(world)
    for name in ("one", "two", "three"):
        await ended(world, name, 30_000)
    await after(world, 2)
    for name in ("one", "two"):
        await ended(world, name, 50_000)
    before = await noted(world)
    for _ in range(4):
        await crowded(world, "three", 31_000)
        await call(world, "one", 51_000)
        await call(world, "two", 51_000)
        await after(world, 30)
    found = await noted(world)
    assert found.first_returns == before.first_returns + 1
    assert found.first_stays == pytest.approx(before.first_stays, abs=0.01)
    assert found.tokens_read > before.tokens_read + 30_000


async def test_a_pause_weighs_less_the_longer_it_lasts(world: World) -> None:
    await world.beat("a")
    await keep_busy(world)
    await ended(world, "one", 64_000)
    shares = []
    for _ in range(4):
        await after(world, 100)
        shares.append((await crowded(world, "two", 99_000)).working_set_tokens / 64_000)
    # With 100 s to stay: the probability of a return within them, after 100, 200, 300, 400 s.
    assert shares == pytest.approx([1 / 2, 1 / 3, 1 / 4, 1 / 5], rel=0.02)


async def test_new_sessions_get_half_of_the_time_to_spare_and_returning_ones_all(
    world: World,
) -> None:
    """The pool has been idle, so it could compute all that it holds once more."""
    await world.beat("a")
    await ended(world, "looks", 512)
    await after(world, 900)
    await ended(world, "back", 40_000)
    await after(world, 300)
    for number in range(4):  # 128,000 tokens, and 10,000 for the one that pauses
        await call(world, f"{number}", 32_000)
    found = await crowded(world, "more", 16_000)
    assert not found.is_back
    assert found.working_set_tokens == pytest.approx(138_000, rel=0.01)
    await call(world, "back", 41_000)


async def test_a_pool_that_gets_busy_takes_less_and_less(world: World) -> None:
    await world.beat("a")
    await ended(world, "looks", 512)
    await after(world, 900)
    for number in range(4):  # 128,000 tokens of sessions that run, which keeps the replica busy
        await call(world, f"{number}", 32_000)
    await after(world, 30)
    await call(world, "looks", 512, may_wait=False)
    assert (await noted(world)).busy == pytest.approx(1 - exp(-30 / 100), rel=0.02)
    await crowded(world, "small", 16_000)


async def test_single_questions_are_learned_to_weigh_little_and_never_to_wait(world: World) -> None:
    await world.beat("a")
    for number in range(60):
        await ended(world, f"{number}", 32_000, may_wait=number < 3)
        await after(world, 10)
    weight = await working_set(world)
    assert weight < 0.2 * sum(32_000 * 100 / (100 + 10 * passed) for passed in range(60))
    for number in range(60, 80):  # at once, six times the pool's memory
        await call(world, f"{number}", 32_000)


async def test_questions_do_not_lessen_the_sessions_that_are_known_to_return(world: World) -> None:
    await world.beat("a")
    for number in range(60):
        await ended(world, f"{number}", 6_400, may_wait=False)
        await after(world, 10)
    before = await working_set(world)
    for tokens in (45_000, 46_000, 47_000):
        for name in ("one", "two"):
            await ended(world, name, tokens)
            await after(world, 2)
    assert await working_set(world) - before == pytest.approx(2 * 47_000, rel=0.1)


async def test_where_nothing_returns_only_a_sample_is_noted(world: World) -> None:
    await world.beat("a")
    sessions = PoolKeys(POOL).sessions
    for number in range(100):
        await ended(world, f"{number}", 6_400)
        await after(world, 10)
    noted_before = await world.redis.hlen(sessions)
    assert noted_before < 40
    for number in range(100, 200):
        await ended(world, f"{number}", 6_400)
        await after(world, 10)
    assert 5 < await world.redis.hlen(sessions) - noted_before < 30


async def test_questions_of_one_name_read_nothing_again(world: World) -> None:
    """As those of an application, whose name each of them has."""
    await world.beat("a")
    for number in range(200):
        await ended(world, f"{number}", 6_400, may_wait=False, session=b"app")
        await after(world, 10)
    assert (await noted(world)).tokens_read == 0


async def test_questions_of_one_name_are_sampled_like_others(world: World) -> None:
    await world.beat("a")
    sessions = PoolKeys(POOL).sessions
    for number in range(100):
        await ended(world, f"{number}", 6_400, session=b"app")
        await after(world, 10)
    noted_before = await world.redis.hlen(sessions)
    for number in range(100, 200):
        await ended(world, f"{number}", 6_400, session=b"app")
        await after(world, 10)
    assert 5 < await world.redis.hlen(sessions) - noted_before < 30


async def test_where_nothing_returned_sessions_that_do_are_soon_counted(world: World) -> None:
    """From some of their first calls on, which are in the sample."""
    await world.beat("a")
    for number in range(100):
        await ended(world, f"{number}", 6_400)
        await after(world, 10)
    before = await working_set(world)
    for tokens in (20_000, 22_000, 24_000):
        for name in ("one", "two", "three", "four"):
            await ended(world, name, tokens)
    assert await working_set(world) - before > 0.6 * 4 * 24_000


async def test_what_returns_within_its_stay_weighs_fully_again(world: World) -> None:
    await world.beat("a")
    for number in range(30):
        await ended(world, f"{number}", 640, may_wait=False)
    await after(world, 100)
    assert await weight_of_a_new_session(world, "one") < 0.4
    for number in range(30, 90):
        for tokens in (640, 1_280):
            await ended(world, f"{number}", tokens, may_wait=False)
    assert await weight_of_a_new_session(world, "two") == pytest.approx(1.0)


async def test_a_pool_of_unknown_memory_has_no_sessions(world: World) -> None:
    await world.beat("a", capacity_tokens=0)
    await ended(world, "one", 64_000)
    assert not await world.redis.exists(PoolKeys(POOL).sessions)


async def test_many_sessions_are_counted_less_often(world: World) -> None:
    await world.beat("a")
    await call(world, "one", 512)
    sessions = PoolKeys(POOL).sessions
    rows: Any = await world.redis.hgetall(sessions)
    (row,) = (row for field, row in rows.items() if field)
    await world.redis.hset(sessions, mapping={f"{number}": row for number in range(2_000)})
    await after(world, 0.3)
    await call(world, "first", 512, may_wait=False)
    counted = (await noted(world)).counted
    assert counted == world.now_ms
    await after(world, 1.9)
    await call(world, "soon", 512, may_wait=False)
    assert (await noted(world)).counted == counted
    await after(world, 0.2)
    await call(world, "later", 512, may_wait=False)
    assert (await noted(world)).counted == world.now_ms


async def test_sessions_that_pause_for_an_hour_are_forgotten(world: World) -> None:
    await world.beat("a")
    await ended(world, "one", 64_000)
    await call(world, "other", 6_400, lease_ms=8_000_000)
    await after(world, 3_700)
    await call(world, "two", 64_000)
    assert await world.redis.hlen(PoolKeys(POOL).sessions) == 3  # other, two, and the sum


async def test_there_are_never_more_sessions_than_the_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that pause for longer than their memory is worth make room."""
    monkeypatch.setitem(lua._KNOWN, "MOST_SESSIONS", 4)
    lua.source_of.cache_clear()
    try:
        await world.beat("a")
        placer = Placer(world.wire, POOL, world.clock, every_s=None)
        for number in range(8):
            ask = world.ask(path(f"{number}", 10), 640, bounds_sessions=True, output_tokens=0)
            placer.release(await placer.place(ask))
            await placer.flush()
        assert await world.redis.hlen(PoolKeys(POOL).sessions) == 4 + 1
        await after(world, 0.3)
        await placer.place(world.ask(path("more", 10), 640, bounds_sessions=True))
        assert (await noted(world)).counted == world.now_ms, "the next call need not count again"
        await after(world, 101)
        ask = world.ask(path("late", 10), 640, bounds_sessions=True, output_tokens=0)
        await placer.place(ask)
        assert await world.redis.hlen(PoolKeys(POOL).sessions) == 1 + 1
    finally:
        lua.source_of.cache_clear()


async def test_a_session_that_no_replica_could_hold_still_runs_alone(world: World) -> None:
    await world.beat("a")
    await call(world, "giant", 200_000)
    assert (await crowded(world, "next", 6_400)).working_set_tokens == 200_000


async def test_all_routers_see_the_same_sessions(world: World) -> None:
    await world.beat("a")
    await call(world, "one", 64_000)
    wire = Wire(world.redis)
    other = Placer(wire, POOL, world.clock, every_s=None)
    try:
        ask = world.ask(path("two", 1_000), 64_000, bounds_sessions=True, output_tokens=0)
        with pytest.raises(PoolCrowded):
            await other.place(ask)
        more = world.ask(path("one", 1_100), 70_400, bounds_sessions=True, output_tokens=0)
        assert (await other.place(more)).chosen.replica == "a"
    finally:
        await wire.aclose()


async def test_without_the_bound_there_are_no_sessions(world: World) -> None:
    await world.beat("a")
    for number in range(5):
        await call(world, f"{number}", 64_000, bounds_sessions=False)
    assert not await world.redis.exists(PoolKeys(POOL).sessions)


async def test_the_sessions_of_a_pool_that_is_used_once_are_forgotten_too(world: World) -> None:
    await world.beat("a")
    await call(world, "one", 64_000)
    assert 0 < await world.redis.pttl(PoolKeys(POOL).sessions) <= 3_600_000


@pytest.mark.parametrize("added", [0, 1, 31, 32, 33, 95, 96, 97, 500])
async def test_a_call_is_its_sessions_however_much_it_adds(world: World, added: int) -> None:
    """Added chunks; the row under its last landmark is looked for from the prompt's end."""
    await world.beat("a")
    await ended(world, "one", 64 * 1_000)
    await ended(world, "one", 64 * (1_000 + added))
    assert (await noted(world)).sessions == 1
    assert await world.redis.hlen(PoolKeys(POOL).sessions) == 1 + 1


async def test_a_call_that_changes_the_end_of_its_sessions_prompt_continues_it(
    world: World,
) -> None:
    await world.beat("a")
    await ended(world, "one", 64 * 960)
    await ended(world, "one", 64 * 1_003)
    kept = path("one", 995)
    other = kept + path("other", 1_040)[len(kept) :]
    await world.place(other, 64 * 1_040, bounds_sessions=True, output_tokens=0)
    assert (await noted(world)).sessions == 1


async def test_short_prompts_are_never_held_back(world: World) -> None:
    await world.beat("a")
    await call(world, "one", 99_000)
    await call(world, "question", 448)


async def test_one_that_may_not_wait_is_placed_and_counts(world: World) -> None:
    await world.beat("a")
    for name in ("one", "two"):
        await call(world, name, 64_000, may_wait=False)
    assert (await crowded(world, "three", 6_400)).working_set_tokens == 128_000


async def test_a_name_lets_a_conversation_that_was_rewritten_go_on(world: World) -> None:
    """Its prompts need not extend each other, as when an agent shortens its conversation."""
    await world.beat("a")
    await call(world, "other", 32_000)
    await ended(world, "long", 64_000, session=b"mine")
    await call(world, "short", 32_000, session=b"mine")
    await after(world, 0.3)
    found = await crowded(world, "third", 99_000)
    assert found.working_set_tokens == pytest.approx(32_000 + 32_000, abs=1)
    assert found.active == 2
    with pytest.raises(PoolCrowded):
        await call(world, "elsewhere", 99_000, session=b"mine", tenant="somebody")


async def test_a_conversation_that_is_shortened_goes_on_in_a_full_pool(world: World) -> None:
    """It is held nowhere, but needs less than its session did before."""
    await world.beat("a")
    await ended(world, "long", 64_000, session=b"mine")
    await call(world, "other", 64_000, may_wait=False)
    with pytest.raises(PoolCrowded):
        await call(world, "longer", 80_000, session=b"mine")
    await call(world, "short", 32_000, session=b"mine")


async def test_conversations_of_one_name_at_the_same_time_count_each(world: World) -> None:
    await world.beat("a")
    for name in ("one", "two", "three"):
        await call(world, name, 32_000, session=b"mine")
    with pytest.raises(PoolCrowded) as refused:
        await call(world, "four", 32_000, session=b"mine")
    assert refused.value.crowded.working_set_tokens == 96_000


async def test_a_name_of_several_conversations_says_nothing_any_more(world: World) -> None:
    """As that of an application: it lets one new session pass the queue, and then none."""
    await world.beat("a")
    for name in ("one", "two"):
        await ended(world, name, 45_000, session=b"app")
    for name in ("one", "two"):
        await ended(world, name, 46_000, session=b"app")  # both went on, so both count
    for _ in range(2):
        with pytest.raises(PoolCrowded) as refused:
            await call(world, "three", 45_000, session=b"app")
        assert refused.value.crowded.working_set_tokens == pytest.approx(2 * 46_000, rel=0.02)
        assert refused.value.crowded.active == 2
        await ended(world, "one", 47_000, session=b"app")


async def test_names_are_forgotten_with_their_sessions(world: World) -> None:
    """However many names a session's calls have."""
    await world.beat("a")
    for number in range(9):
        await world.release(await call(world, "one", 6_400, session=f"{number}".encode()))
    sessions = PoolKeys(POOL).sessions
    await after(world, 0.3)
    await call(world, "one", 6_400, session=b"last")
    await after(world, 0.3)
    await call(world, "two", 6_400)
    rows: Any = await world.redis.hkeys(sessions)
    assert sorted(len(field) for field in rows) == [0, 8, 8, 16]


async def test_the_working_set_does_not_depend_on_the_order_in_which_redis_lists_sessions(
    valkey_server: RedisServer, redis_server: RedisServer
) -> None:
    """Each server has an order of its own. Most of the forty never return, so they weigh less and
    less; by how much is a sum of fractions, which may differ in its last bit."""
    found = []
    for server in (valkey_server, redis_server):
        async with World.open(server.url) as world:
            await world.beat("a")
            for number in range(40):
                name, tokens = f"s{number}", 640 + 67 * number
                await ended(world, name, tokens, may_wait=False)
                if number % 3 == 0:
                    await ended(world, name, 2 * tokens, may_wait=False)
                await after(world, 7.77)
            await call(world, "looks", 640, may_wait=False)
            found.append(await noted(world))
    valkey, redis = found
    assert valkey == pytest.approx(redis, rel=1e-12)
    assert valkey.held == redis.held
    assert 8 + valkey.first_returns < valkey.first_stays
