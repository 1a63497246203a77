"""Marks of replicas: their effect on placement, which router may claim them, and when they end."""

import pytest

from pando_fleet.placement.placer import NoReplica
from pando_fleet.records.marks import CLAIM_MS, Marks
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.layout.constants import MARK_KEPT_MS, MarkKind, MarkState
from tests.fleet.world import POOL, World

MINUTE = 60_000


@pytest.fixture
def marks(world: World) -> Marks:
    return Marks(world.redis, POOL, world.clock)


async def withheld(world: World) -> dict[str, str]:
    return {r.beat.replica: r.withheld for r in await world.registry.replicas(POOL)}


@pytest.mark.parametrize("kind", [MarkKind.DRAIN, MarkKind.WARM])
async def test_marked_replica_is_placed_on_by_nobody_from_that_moment(
    world: World, marks: Marks, kind: MarkKind
) -> None:
    await world.beat("a", "b")
    budget = 0 if kind is MarkKind.DRAIN else 1_000
    assert await marks.set(kind, "a", lasts_ms=MINUTE, budget_tokens=budget)
    for _ in range(4):
        assert (await world.place()).chosen.replica == "b"
    with pytest.raises(NoReplica):
        await world.place(only="a")
    await world.beat("a", "b")  # a heartbeat does not bring it back
    assert set(await world.terms()) == {"b"}
    assert await withheld(world) == {"a": str(kind), "b": ""}
    await marks.clear(kind, "a")
    await world.beat("a", "b")
    assert set(await world.terms()) == {"a", "b"}
    assert await withheld(world) == {"a": "", "b": ""}


async def test_marked_replica_takes_requests_again_when_its_mark_ends(
    world: World, marks: Marks
) -> None:
    await world.beat("a")
    await marks.set(MarkKind.WARM, "a", lasts_ms=MINUTE, budget_tokens=1_000)
    world.now_ms += MINUTE
    await world.beat("a")
    assert set(await world.terms()) == {"a"}
    (mark,) = await marks.all()
    assert mark.is_over
    assert mark.state is MarkState.OPEN


async def test_replica_that_hands_off_is_still_placed_on(world: World, marks: Marks) -> None:
    await world.beat("a")
    await marks.set(MarkKind.HAND_OFF, "a", lasts_ms=MINUTE, budget_tokens=1_000)
    await world.beat("a")
    assert (await world.place()).chosen.replica == "a"


async def test_mark_waits_for_a_replica_that_has_not_joined_yet(world: World, marks: Marks) -> None:
    await world.beat("b")
    await marks.set(MarkKind.WARM, "a", lasts_ms=MINUTE, budget_tokens=1_000)
    await world.beat("a")
    assert set(await world.terms()) == {"b"}


async def test_one_router_claims_a_mark_and_the_next_goes_on_when_it_is_silent(
    world: World, marks: Marks
) -> None:
    await marks.set(MarkKind.WARM, "a", lasts_ms=10 * MINUTE, budget_tokens=1_000)
    (mark,) = await marks.all()
    first = await marks.claim(mark, "r1")
    assert first is not None
    assert await marks.claim(mark, "r2") is None
    assert await marks.report(first, tokens=300, prefixes=2)
    world.now_ms += CLAIM_MS - 1
    assert await marks.claim(mark, "r2") is None
    world.now_ms += 1
    second = await marks.claim(mark, "r2")
    assert second is not None
    assert (second.tokens, second.prefixes, second.router) == (300, 2, "r2")
    assert not await marks.report(first, tokens=999)  # it is no longer its own
    assert await marks.report(second, tokens=100, prefixes=1, state=MarkState.DONE)
    (mark,) = await marks.all()
    assert (mark.tokens, mark.prefixes, mark.state) == (400, 3, MarkState.DONE)
    assert await marks.claim(mark, "r1") is None


async def test_mark_at_work_is_not_set_again_but_a_finished_one_is(
    world: World, marks: Marks
) -> None:
    async def set_one() -> bool:
        return await marks.set(MarkKind.HAND_OFF, "a", lasts_ms=MINUTE, budget_tokens=1_000)

    assert await set_one()
    (mark,) = await marks.all()
    claimed = await marks.claim(mark, "r1")
    assert claimed is not None
    assert not await set_one()
    await marks.report(claimed, state=MarkState.SKIPPED, reason="nothing to do")
    (mark,) = await marks.all()
    assert mark.reason == "nothing to do"
    assert await set_one()
    (mark,) = await marks.all()
    assert (mark.state, mark.reason) == (MarkState.OPEN, "")


async def test_drain_mark_is_renewed(world: World, marks: Marks) -> None:
    for _ in range(3):
        assert await marks.set(MarkKind.DRAIN, "a", lasts_ms=MINUTE)
        world.now_ms += MINUTE // 2
    (mark,) = await marks.all()
    assert not mark.is_over


async def test_cleared_mark_stops_its_router(world: World, marks: Marks) -> None:
    await marks.set(MarkKind.WARM, "a", lasts_ms=MINUTE, budget_tokens=1_000)
    (mark,) = await marks.all()
    claimed = await marks.claim(mark, "r1")
    assert claimed is not None
    await marks.clear(MarkKind.WARM, "a")
    assert not await marks.report(claimed, tokens=5)
    assert await marks.all() == []


async def test_a_mark_stays_ten_minutes_after_its_end_regardless_of_other_marks(
    world: World, marks: Marks
) -> None:
    await marks.set(MarkKind.DRAIN, "a", lasts_ms=MINUTE)
    world.now_ms += MINUTE + MARK_KEPT_MS - 1
    await marks.set(MarkKind.DRAIN, "b", lasts_ms=MINUTE)
    assert sorted(mark.replica for mark in await marks.all()) == ["a", "b"]
    world.now_ms += 1
    await marks.set(MarkKind.DRAIN, "c", lasts_ms=MINUTE)
    assert sorted(mark.replica for mark in await marks.all()) == ["b", "c"]


async def test_old_marks_are_forgotten(world: World, marks: Marks) -> None:
    await marks.set(MarkKind.DRAIN, "a", lasts_ms=MINUTE)
    world.now_ms += 12 * MINUTE
    await marks.set(MarkKind.DRAIN, "b", lasts_ms=MINUTE)
    assert [mark.replica for mark in await marks.all()] == ["b"]


@pytest.mark.parametrize(
    ("kind", "budget", "lasts_ms"),
    [(MarkKind.WARM, 0, MINUTE), (MarkKind.DRAIN, 5, MINUTE), (MarkKind.WARM, 5, 0)],
)
async def test_mark_without_sense_is_refused(
    marks: Marks, kind: MarkKind, budget: int, lasts_ms: int
) -> None:
    with pytest.raises(FleetError):
        await marks.set(kind, "a", lasts_ms=lasts_ms, budget_tokens=budget)
