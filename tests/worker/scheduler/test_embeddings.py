"""Prompts that are embedded, beside prompts that are continued."""

import numpy as np
import pytest

from pando_worker.messages import FinishReason, Pooling
from pando_worker.scheduler.batches.pooling import normalized
from tests.worker.scheduler.hash_model import HashRunner, expected_embedding, expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


@pytest.mark.parametrize("pooling", Pooling)
def test_an_embedding_is_pooled_over_all_chunks(pooling: Pooling) -> None:
    world = World(pages=256, page_size=4, chunked_prefill_size=16)
    world.send("stream", [1] * 6, max_new_tokens=30)
    for length in (1, 15, 16, 17, 60):
        world.embed(f"e{length}", range(length), pooling)
    world.run()
    for length in (1, 15, 16, 17, 60):
        expected = expected_embedding(range(length), pooling)
        assert world.embeddings[f"e{length}"] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert world.tokens["stream"] == expected_tokens([1] * 6, 30)


def test_a_cached_prefix_serves_the_last_token_and_no_other_pooling() -> None:
    world = World(pages=256, page_size=4)
    world.send("warm", range(40), max_new_tokens=1)
    world.run()
    for pooling in Pooling:
        world.embed(pooling, range(40), pooling)
        world.run()
        assert world.embeddings[pooling] == pytest.approx(
            expected_embedding(range(40), pooling), rel=1e-5
        )
    assert world.cached == {"warm": 0} | dict.fromkeys(Pooling, 0) | {"last": 36}


@pytest.mark.parametrize("steps", range(5))
def test_an_aborted_embedding_frees_its_pages(steps: int) -> None:
    world = World(page_size=4, chunked_prefill_size=8)
    world.embed("a", range(20), Pooling.MEAN)
    for _ in range(steps):
        world.step()
    world.abort("a")
    world.run()
    assert ("a" in world.embeddings) != (world.finish.get("a") is FinishReason.ABORT)
    world.check_ownership()
    assert world.scheduler.stats().pinned_tokens == 0


def test_an_embedding_retracted_in_the_middle_is_whole_in_the_end() -> None:
    world = World(pages=12, page_size=4, chunked_prefill_size=8, new_token_ratio=0.01, watermark=0)
    world.send("stream", [1] * 6, max_new_tokens=38)
    for _ in range(4):
        world.step()
    world.embed("chunks", range(34), Pooling.MEAN)
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    expected = expected_embedding(range(34), Pooling.MEAN)
    assert world.embeddings["chunks"] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_prompt_may_fill_the_pool_but_not_exceed_it() -> None:
    world = World(pages=8, page_size=4)
    world.embed("fits", range(32), Pooling.LAST)
    world.embed("big", range(33), Pooling.LAST)
    world.run()
    assert world.rejected["big"].status == 400
    assert set(world.embeddings) == {"fits"}


def test_embeddings_wake_no_runner_that_has_nothing_to_pool() -> None:
    world = World(runner=HashRunner(256))
    world.send("a", range(5))
    world.run()
    assert all(batch.pooled is None for batch in world.batches)


@pytest.mark.parametrize("size", [1e-37, 1e-25, 1.0, 1e25, 1e38])
def test_vectors_of_any_size_get_a_length_of_1(size: float) -> None:
    vector = np.array([0.6 * size, 0, -0.8 * size], dtype=np.float32)
    assert normalized(vector) == pytest.approx([0.6, 0, -0.8], abs=1e-5)
    assert normalized(vector).dtype == np.float32


def test_a_vector_of_zeros_has_no_direction() -> None:
    assert np.isnan(normalized(np.zeros(3, dtype=np.float32))).all()
