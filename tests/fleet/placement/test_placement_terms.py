"""What a placement reports about the candidates that it did not choose."""

from pando_fleet.placement.placer import Ask
from tests.fleet.world import World, path


async def test_placement_has_every_candidates_terms_where_that_is_asked(world: World) -> None:
    await world.beat("a", "b", "c")
    await world.beat("b", pinned_tokens=7_000)
    keys = path("p", 4)
    await world.place(keys, 256, only="b")
    await world.placer.flush()
    ask: Ask = world.ask(keys, 256, every=True)
    before = await world.terms(keys, 256)
    placed = await world.placer.place(ask)
    assert {c.replica: c for c in placed.candidates} == before
    assert placed.candidates[0] == placed.chosen.candidate
    costs = [candidate.cost_s for candidate in placed.candidates]
    assert costs == sorted(costs)
    space = {c.replica: (c.pinned_tokens, c.capacity_tokens) for c in placed.candidates}
    assert space == {"a": (0, 100_000), "b": (7_000, 100_000), "c": (0, 100_000)}
    assert (await world.place(keys, 256)).candidates == ()


async def test_placement_on_one_replica_still_reports_all_candidates(world: World) -> None:
    await world.beat("a", "b", "c")
    placed = await world.place(only="c", every=True, exclude=("a",))
    assert placed.chosen.replica == "c"
    assert {candidate.replica for candidate in placed.candidates} == {"b", "c"}


async def test_placement_reports_which_replica_holds_the_most_of_the_prompt(world: World) -> None:
    await world.beat("a", "b")
    prompts = [path(f"{number}", 8) for number in range(6)]  # different search orders
    for keys in prompts:
        await world.place(keys[: 5 * 8], 320, only="a")
    await world.placer.flush()
    for _ in range(20):  # a is so busy that b computes it again
        await world.place(path("other", 8), 4_000, only="a")
    for keys in prompts:
        placed = await world.place(keys, 512)
        assert placed.chosen.replica == "b"
        assert (placed.chosen.holder, placed.chosen.most_chunks) == ("a", 5)


async def test_a_full_replica_is_reported_with_its_terms_and_never_chosen(world: World) -> None:
    await world.beat("a", "b")
    keys = path("p", 4)
    await world.place(keys, 256, only="a")
    placed = await world.place(keys, 256, every=True, max_outstanding=1)
    assert [(c.replica, c.matched_chunks, c.full) for c in placed.candidates] == [
        ("b", 0, False),
        ("a", 4, True),
    ]
    chosen = placed.chosen
    assert chosen.candidate == placed.candidates[0]
    assert (chosen.holder, chosen.most_chunks, chosen.holder_full) == ("a", 4, True)
    everybody = await world.placer.explain(world.ask(keys, 256, max_outstanding=1))
    assert {(c.replica, c.full) for c in everybody} == {("a", True), ("b", True)}


async def test_broken_terms_of_one_replica_leave_the_others_placed_on(world: World) -> None:
    await world.beat("a", "b", "c", "d")
    terms = "pando:{llama}:terms"
    row = await world.redis.hget(terms, "b")
    assert isinstance(row, bytes)
    await world.redis.hset(terms, "b", row[:20])
    await world.redis.hset(terms, "c", bytes((row[0] + 1,)) + row[1:])
    await world.redis.hset(terms, "d", b"")
    assert set(await world.terms()) == {"a"}
    assert (await world.place()).chosen.replica == "a"
