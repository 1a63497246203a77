"""The plan for a budget: the hottest prefixes, nothing twice, never above the budget."""

from hypothesis import given
from hypothesis import strategies as st

from pando_router.warming.plan import MAX_PREFIXES, plan
from pando_router.warming.prefixes import HotPrefix, HotPrefixes, SentRequest

CHUNK_TOKENS = 64
BYTES_PER_TOKEN = 4.0
paths = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple)


def keys(path: tuple[int, ...]) -> bytes:
    return b"".join(part.to_bytes(8, "big") for part in path)


def hot(*requests: tuple[int, ...]) -> HotPrefixes:
    tree = HotPrefixes(1 << 24, lambda: 0.0)
    for path in requests:
        tree.observe("p", keys(path), SentRequest("/x", b"", "m"))
    return tree


def planned(tree: HotPrefixes, chunks: int) -> list[HotPrefix]:
    return plan(tree.hottest("p"), chunks * CHUNK_TOKENS, BYTES_PER_TOKEN)


def chunks_of(prefixes: list[HotPrefix]) -> set[bytes]:
    """Every computed chunk, identified by its whole prefix."""
    return {p.keys[:end] for p in prefixes for end in range(8, len(p.keys) + 1, 8)}


@given(st.lists(paths, min_size=1, max_size=40), st.integers(0, 40))
def test_budget_is_spent_on_the_most_frequent_chunks(
    requests: list[tuple[int, ...]], budget: int
) -> None:
    chosen = planned(hot(*requests), budget)
    computed = chunks_of(chosen)
    seen = [keys(path[:end]) for path in requests for end in range(1, len(path) + 1)]
    assert len(computed) == min(budget, len(set(seen)))
    left_out = set(seen) - computed
    if computed and left_out:
        assert min(map(seen.count, computed)) >= max(map(seen.count, left_out))
    for one in chosen:  # no prefix is listed that another one includes
        assert not any(other.keys.startswith(one.keys) for other in chosen if other is not one)


def test_shared_prefix_is_computed_with_what_extends_it() -> None:
    tree = hot((1, 2), (1, 2), (1, 3), (1, 3), (1, 3))
    assert [prefix.keys for prefix in planned(tree, 10)] == [keys((1, 3)), keys((1, 2))]


def test_plan_is_bounded_whatever_the_budget() -> None:
    tree = hot(*((number,) for number in range(2 * MAX_PREFIXES)))
    assert len(planned(tree, 1 << 30)) == MAX_PREFIXES
