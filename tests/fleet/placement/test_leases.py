"""Leases and their running sums, compared with a plain list of leases."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_fleet.placement.placer import Placement
from pando_fleet.redis.layout.rows import Candidate
from tests.examples import examples
from tests.fleet.world import World

_REPLICAS = ("a", "b", "c")


@dataclass
class _Held:
    placement: Placement
    uncached: int
    output: int
    ends_ms: int
    waiting: bool = True

    @property
    def owner(self) -> tuple[str, str]:
        chosen = self.placement.chosen
        return chosen.replica, chosen.incarnation


_STEP = st.one_of(
    st.tuples(st.just("place"), st.integers(1, 5_000), st.integers(0, 900), st.integers(1, 5_000)),
    st.tuples(st.just("prefilled"), st.integers(0, 30)),
    st.tuples(st.just("release"), st.integers(0, 30)),
    st.tuples(st.just("renew"), st.integers(1, 5_000)),
    st.tuples(st.just("wait"), st.integers(0, 3_000)),
    st.tuples(st.just("restart"), st.sampled_from(_REPLICAS)),
)


class _Model:
    """The fleet as a list: the correct state after each step, by definition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[_Held] = []
        self._expired: list[_Held] = []  # not released, so a renewal restores them
        self._ended: list[Placement] = []
        self._incarnation = dict.fromkeys(_REPLICAS, 1)

    async def step(self, kind: str, *values: int | str) -> None:
        world = self._world
        if kind == "place":
            prompt, output, lease_ms = (int(value) for value in values)
            placed = await world.place(
                prompt_tokens=prompt, output_tokens=output, lease_ms=lease_ms
            )
            self._held.append(_Held(placed, prompt, output, world.now_ms + lease_ms))
        elif kind == "wait":
            world.now_ms += int(values[0])
            self._expired += [h for h in self._held if h.ends_ms <= world.now_ms]
            self._held = [h for h in self._held if h.ends_ms > world.now_ms]
        elif kind == "renew":
            await self._renew(int(values[0]))
        elif kind == "restart":
            self._incarnation[str(values[0])] += 1
        else:
            await self._end(kind, int(values[0]))
        await self.beat()

    async def _end(self, kind: str, number: int) -> None:
        """Ends a part of a live lease, or of one that has already ended, without effect."""
        end = self._world.prefilled if kind == "prefilled" else self._world.release
        if number >= len(self._held):
            if self._ended:
                await end(self._ended[number % len(self._ended)])
            return
        held = self._held[number]
        await end(held.placement)
        held.waiting = False
        if kind == "release":
            self._held.remove(held)
            self._ended.append(held.placement)

    async def _renew(self, lease_ms: int) -> None:
        """Renews all leases that were not released, including expired ones."""
        self._held += self._expired
        self._expired.clear()
        for held in self._held:
            held.ends_ms = self._world.now_ms + lease_ms
        await self._world.renew(lease_ms)

    async def beat(self) -> None:
        for replica, incarnation in self._incarnation.items():
            await self._world.beat(
                replica,
                incarnation=str(incarnation),
                capacity_tokens=1,
                release_tokens_per_s=1.0,
                prefill_tokens_per_s=1.0,
            )

    def check(self, terms: dict[str, Candidate]) -> None:
        """`terms` are for a prompt of 1 token without output, so they show the sums."""
        for replica, incarnation in self._incarnation.items():
            mine = [h for h in self._held if h.owner == (replica, str(incarnation))]
            backlog = sum(h.uncached for h in mine if h.waiting)
            expected = sum(h.output for h in mine if h.waiting)
            seen = terms[replica]
            assert (seen.outstanding, seen.backlog_tokens) == (len(mine), backlog)
            assert seen.wait_s == backlog
            assert seen.kv_wait_s == backlog + expected  # capacity 1, need 1, 1 token a second
            assert seen.queue == sum(h.waiting for h in mine)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(_STEP, max_size=25))
async def test_sums_equal_the_leases_alive_after_any_sequence(
    redis_url: str, steps: list[tuple[str, int | str]]
) -> None:
    async with World.open(redis_url) as world:
        model = _Model(world)
        await model.beat()
        for step in steps:
            await model.step(*step)
            asked = world.ask(prompt_tokens=1, output_tokens=0)
            model.check({c.replica: c for c in await world.placer.explain(asked)})


async def test_a_dead_routers_lease_ends_by_itself(world: World) -> None:
    await world.beat("a")
    await world.place(lease_ms=2_000)
    world.now_ms += 1_999
    assert (await world.terms())["a"].backlog_tokens == 1_000
    world.now_ms += 1
    assert (await world.terms())["a"].backlog_tokens == 0
    assert (await world.terms())["a"].outstanding == 0


async def test_a_renewed_lease_outlasts_its_time(world: World) -> None:
    await world.beat("a")
    await world.place(lease_ms=2_000)
    for _ in range(100):  # long past its first end
        world.now_ms += 1_500
        await world.beat("a")
        await world.renew(2_000)
        assert (await world.terms())["a"].outstanding == 1
    world.now_ms += 2_000
    assert (await world.terms())["a"].outstanding == 0


async def test_an_ask_that_is_sent_again_after_a_lost_answer_counts_once(world: World) -> None:
    await world.beat("a", "b")
    ask = world.ask()
    await world.placer.place(ask)
    again = await world.placer.place(ask)
    terms = await world.terms()
    assert terms[again.chosen.replica].outstanding == 1
    assert sum(t.outstanding for t in terms.values()) == 1


async def test_many_leases_that_end_at_once_are_cleared_in_bounded_steps(world: World) -> None:
    await world.beat("a")
    for _ in range(150):
        await world.place(prompt_tokens=10, lease_ms=1_000)
    world.now_ms += 1_000
    left = [(await world.terms())["a"].outstanding for _ in range(3)]
    assert left == [86, 22, 0]
