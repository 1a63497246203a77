"""The memory of sent chunks, compared with lists that are searched."""

from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.placement.prefix import chunk_keys
from pando_sim.policies.sent import Sent, split

Acts = list[tuple[str, list[int], int]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.lists(st.integers(0, 2), max_size=4), st.integers(0, 9)
        )
    )
)
def test_each_replica_has_its_most_recent_chunks(acts: Acts) -> None:
    sent = Sent()
    recent: dict[str, list[bytes]] = {}
    came: dict[bytes, list[str]] = {}
    for name, blocks, most in acts:
        keys = split(chunk_keys(b"".join(bytes([block]) * 256 for block in blocks), 7))
        sent.add(name, keys)
        sent.trim(name, most)
        old = recent.setdefault(name, [])
        for key in keys:
            if key in old:
                old.remove(key)
            else:
                came.setdefault(key, []).append(name)
            old.append(key)
        for key in old[: max(0, len(old) - most)]:
            came[key].remove(name)
        del old[: max(0, len(old) - most)]
        for each, keys_of_each in recent.items():
            sent.trim(each, len(keys_of_each))  # it keeps no more than these
        assert sent.replicas == {key: tuple(names) for key, names in came.items() if names}
    for name in recent:
        sent.forget(name)  # nor fewer
    assert sent.replicas == {}
    assert sent.known() == ()


def test_a_forgotten_replica_holds_nothing() -> None:
    sent = Sent()
    sent.add("a", [b"1", b"2"])
    sent.add("b", [b"1"])
    sent.forget("a")
    assert sent.replicas == {b"1": ("b",)}
    assert sent.known() == ("b",)
