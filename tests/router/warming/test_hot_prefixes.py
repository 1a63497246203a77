"""The hottest prefixes in bounded memory, compared with plain counts of every prefix."""

import gc
import random
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_router.warming.prefixes import HALF_LIFE_S, HotPrefix, HotPrefixes, SentRequest

ROOMY = 1 << 24
# Paths over three kinds of chunks: they share prefixes of all lengths, end within each other and
# diverge at every depth.
paths = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)
Path = tuple[int, ...]


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Seen:
    """The tree under test, and plain counts."""

    limit: int = ROOMY
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.tree = HotPrefixes(self.limit, self.clock)
        self.counts: Counter[Path] = Counter()

    def see(self, path: Path, body: bytes = b"", pool: str = "p") -> None:
        self.tree.observe(pool, keys(path), SentRequest("/x", str(path).encode() + body, "m"))
        self.counts.update(path[:end] for end in range(1, len(path) + 1))

    def found(self, least: float = 0.0, pool: str = "p") -> dict[Path, HotPrefix]:
        return {path_of(hot.keys): hot for hot in self.tree.hottest(pool, least)}


def keys(path: Path) -> bytes:
    return b"".join(part.to_bytes(8, "big") for part in path)


def path_of(packed: bytes) -> Path:
    return tuple(int.from_bytes(packed[i : i + 8], "big") for i in range(0, len(packed), 8))


@given(st.lists(paths, max_size=60))
def test_with_room_every_border_between_prompts_is_counted_exactly(requests: list[Path]) -> None:
    seen = Seen()
    for path in requests:
        seen.see(path)
    found = seen.found()
    # Where prompts end or diverge. All other prefixes count as often as their extension.
    borders = {
        path
        for path, number in seen.counts.items()
        if all(seen.counts[(*path, more)] != number for more in range(3))
    }
    assert borders <= found.keys()
    for path, hot in found.items():
        assert hot.requests == pytest.approx(seen.counts[path])


@given(st.lists(paths, max_size=120), st.integers(20_000, 60_000))
def test_without_room_counts_are_never_above_the_truth_nor_memory_above_its_bound(
    requests: list[Path], limit: int
) -> None:
    seen = Seen(limit)
    for path in requests:
        seen.see(path, b"." * (limit // 20))
        assert seen.tree.bytes <= limit
    for path, hot in seen.found().items():
        assert hot.requests <= seen.counts[path] + 1e-6
        assert hot.source.body.startswith(str(path)[:-1].rstrip(",").encode())


@given(st.lists(paths, min_size=1, max_size=120), st.integers(20_000, 60_000))
def test_prefixes_come_hottest_first_and_before_what_extends_them(
    requests: list[Path], limit: int
) -> None:
    seen = Seen(limit)
    for path in requests:
        seen.see(path, b"." * (limit // 20))
    found = list(seen.tree.hottest("p"))
    assert [hot.requests for hot in found] == sorted((h.requests for h in found), reverse=True)
    place = {hot.keys: index for index, hot in enumerate(found)}
    for hot in found:
        for end in range(8, len(hot.keys), 8):
            assert place.get(hot.keys[:end], -1) < place[hot.keys]


def test_shared_beginning_is_found_where_every_prompt_is_different() -> None:
    # Ten thousand different prompts; a third of them share 37 chunks.
    rng = random.Random(1)
    system = tuple(range(1_000, 1_037))
    seen = Seen(limit=200_000)  # room for about 150
    for number in range(10_000):
        own = tuple(rng.randrange(1 << 60) for _ in range(4))
        seen.see((*system, *own) if number % 3 == 0 else own)
    hottest = next(seen.tree.hottest("p"))
    assert path_of(hottest.keys) == system
    assert hottest.requests == pytest.approx(10_000 / 3, rel=0.02)
    assert seen.tree.bytes <= 200_000


def test_frequent_prompt_that_comes_late_into_full_memory_is_found() -> None:
    rng = random.Random(2)
    seen = Seen(limit=100_000)
    for _ in range(500):
        early = (rng.randrange(1 << 60),)
        seen.see(early)
        seen.see(early)
    for number in range(2_000):  # one in ten, each time among ten others
        seen.see((7, 7) if number % 10 == 0 else (rng.randrange(1 << 60),))
    assert path_of(next(seen.tree.hottest("p", 20)).keys) == (7, 7)


def test_what_was_hot_cools_down() -> None:
    seen = Seen()
    for _ in range(64):
        seen.see((1,))
    seen.clock.now += 4 * HALF_LIFE_S
    for _ in range(5):
        seen.see((2,))
    found = seen.found()
    assert list(found) == [(2,), (1,)]
    assert found[(1,)].requests == pytest.approx(4)
    assert list(seen.found(least=5)) == [(2,)]


def test_counts_go_on_through_months() -> None:
    seen = Seen()
    for _ in range(3):
        seen.clock.now += 499 * HALF_LIFE_S
        seen.see((1,))
        seen.see((1, 2))
    assert {path: hot.requests for path, hot in seen.found(1).items()} == {(1,): 2, (1, 2): 1}


def test_pools_know_nothing_of_each_other() -> None:
    seen = Seen()
    seen.see((1, 2), pool="one")
    seen.see((1, 3), pool="two")
    assert list(seen.found(pool="one")) == [(1, 2)]
    assert list(seen.found(pool="two")) == [(1, 3)]
    assert seen.found(pool="three") == {}


def test_giant_request_is_not_kept() -> None:
    seen = Seen(limit=100_000)
    seen.see((1,), body=b"." * 50_000)
    assert seen.tree.bytes == 0


def test_bound_holds_for_the_memory_that_the_process_really_takes() -> None:
    rng = random.Random(3)
    limit = 4 << 20
    gc.collect()
    tracemalloc.start()
    tree = HotPrefixes(limit, Clock())
    for number in range(5_000):
        path = tuple(rng.randrange(1 << 60) for _ in range(rng.randrange(1, 40)))
        shared = (number % 50, number % 250)
        tree.observe(
            "p", keys((*shared, *path)), SentRequest("/x", bytes(rng.randrange(2_000)), "m")
        )
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 * limit < taken < 1.1 * limit, tree.bytes
