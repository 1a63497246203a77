"""Cached prefixes are shared within a namespace, and never between two."""

import pytest

from pando_worker.memory.namespace import namespace
from pando_worker.messages import Pooling
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World

PROMPT = list(range(1, 42))
OURS, THEIRS = namespace("ours", None), namespace("theirs", None)


@pytest.mark.parametrize("policy", ["lpm", "dfs-weight", "fcfs"])
def test_a_prompt_of_another_namespace_is_computed_again_and_then_shared(policy: str) -> None:
    world = World(schedule_policy=policy)
    for rid, space in (("a", b""), ("b", OURS), ("c", THEIRS), ("d", OURS), ("e", b"")):
        world.send(rid, PROMPT, namespace=space)
        world.run()
        assert world.tokens[rid] == expected_tokens(PROMPT, 4)
    assert world.cached == {"a": 0, "b": 0, "c": 0, "d": 40, "e": 40}


def test_what_another_name_space_computes_at_the_moment_is_not_waited_for() -> None:
    world = World(chunked_prefill_size=256)
    world.send("a", PROMPT)
    world.send("b", PROMPT, namespace=OURS)
    world.send("c", PROMPT, namespace=OURS)
    world.run()
    assert len(world.batches[0].input_ids) == 2 * len(PROMPT)
    assert world.cached == {"a": 0, "b": 0, "c": 40}


def test_what_is_on_the_host_stays_within_its_name_space() -> None:
    world = World(pages=16, host_pages=64, host_write="write-back")
    world.send("a", PROMPT, namespace=OURS)
    world.run()
    world.send("b", range(100, 160), namespace=THEIRS)  # evicts it to the host
    world.run()
    assert world.cached_len(PROMPT, OURS) > 0
    assert world.cached_len(PROMPT, THEIRS) == world.cached_len(PROMPT) == 0


def test_embeddings_share_prefixes_within_their_name_space_alone() -> None:
    world = World()
    world.send("a", PROMPT, namespace=OURS)
    world.run()
    world.embed("b", PROMPT, Pooling.LAST)
    world.run()
    assert world.cached["b"] == 0


def test_neither_salt_can_imitate_the_other_or_both() -> None:
    words = [None, "", "a", "b", "ab", "a\x00b", "\x00", "\ud800"]
    spaces = {
        (tenant or "", own or ""): namespace(tenant, own) for tenant in words for own in words
    }
    assert len(set(spaces.values())) == len(spaces)
    assert spaces["", ""] == b""
    assert {len(space) % 4 for pair, space in spaces.items() if any(pair)} == {1}
