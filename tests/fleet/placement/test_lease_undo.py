"""A lease that closes undoes what placing did, except what an answer has made true."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.placement.lease import Lease
from pando_fleet.placement.prefix import KEY_BYTES
from tests.examples import examples
from tests.fleet.world import World, path

CHUNKS = 12
LONG = path("long", 100)
PROMPT = path("prompt", CHUNKS)


async def test_a_lease_without_an_answer_leaves_nothing_behind(world: World) -> None:
    await world.beat("a")
    with await Lease.take(world.placer, world.ask(LONG, 6_400)):
        pass
    await world.placer.flush()
    terms = (await world.terms(LONG, 6_400))["a"]
    assert (terms.matched_chunks, terms.outstanding, terms.backlog_tokens) == (0, 0, 0)


async def test_a_lease_that_ends_by_an_exception_is_undone_too(world: World) -> None:
    await world.beat("a")
    try:
        with await Lease.take(world.placer, world.ask(LONG, 6_400)):
            raise ConnectionError
    except ConnectionError:
        pass
    await world.placer.flush()
    assert (await world.terms(LONG, 6_400))["a"].matched_chunks == 0


@given(
    held=st.integers(0, CHUNKS),
    answers=st.booleans(),
    complete=st.booleans(),
    corrected=st.none() | st.integers(0, CHUNKS),
    closes=st.integers(1, 3),
)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_a_closed_lease_leaves_what_was_held_or_what_the_answer_says(
    world: World, held: int, answers: bool, complete: bool, corrected: int | None, closes: int
) -> None:
    await world.redis.flushall()
    await world.beat("a")
    if held:
        with await Lease.take(world.placer, world.ask(PROMPT[: held * KEY_BYTES], 100)) as earlier:
            earlier.answered(complete=True)
        await world.placer.flush()
    lease = await Lease.take(world.placer, world.ask(PROMPT, 1_000))
    assert lease.placement.chosen.matched_chunks == held
    if answers:
        lease.answered(complete=complete)
        if corrected is not None:
            lease.correct(corrected)
    for _ in range(closes):
        lease.close()
    await world.placer.flush()
    after = (await world.terms(PROMPT, 1_000))["a"]
    expected = held if not answers else CHUNKS if corrected is None else corrected
    assert (after.matched_chunks, after.outstanding, after.backlog_tokens) == (expected, 0, 0)
