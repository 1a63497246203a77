"""Encoder-decoders in the engine: the tokens of transformers, in any batch, from cached encodings,
after retractions, and with sources that only the host has."""

from collections.abc import Iterator

import pytest

from tests.worker.encoder_decoder.checkpoints import MODELS, START, SourceReference, sent
from tests.worker.encoder_decoder.engines import PAGE_SIZE, Worlds, ask, engines_of

COUNT = 10


@pytest.fixture(scope="module", params=MODELS)
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SourceReference:
    return MODELS[request.param](tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", params=["off", "on"], ids=["torch", "kernels"])
def worlds(request: pytest.FixtureRequest, reference: SourceReference) -> Iterator[Worlds]:
    with engines_of(reference.path, cpu_kernels=request.param) as worlds:
        yield worlds


PROMPTS = [[START], [START, 50, 17, 4], [START, *range(20, 43)], [START, 9, 9]]


@pytest.mark.parametrize("settings", [{}, {"overlap_schedule": False}, {"chunked_prefill_size": 8}])
def test_tokens_are_those_of_transformers_in_one_batch(
    reference: SourceReference, worlds: Worlds, settings: dict[str, object]
) -> None:
    """Of sources that are alike and unlike, with prompts that are cut and that are not."""
    world = worlds(**settings)
    sources = [reference.source(seed) for seed in (1, 2, 1, 3)]
    for index, (source, prompt) in enumerate(zip(sources, PROMPTS, strict=True)):
        ask(world, str(index), source, prompt, COUNT)
    world.run()
    assert world.rejected == {}
    expected = [reference.greedy(*each, COUNT) for each in zip(sources, PROMPTS, strict=True)]
    assert [world.tokens[str(index)] for index in range(4)] == expected
    assert len({tuple(tokens) for tokens in expected}) == 4
    assert all(len(set(tokens)) > 2 for tokens in expected)
    encoded = [
        each.digest for batch in world.batches if batch.sources for each in batch.sources.encode
    ]
    assert len(encoded) == len(set(encoded)) == 3


def test_a_source_that_comes_again_is_not_encoded_again(
    reference: SourceReference, worlds: Worlds
) -> None:
    world = worlds()
    source = reference.source(1)
    for rid, prompt in (("first", PROMPTS[2]), ("again", PROMPTS[2]), ("other", PROMPTS[1])):
        ask(world, rid, source, prompt, COUNT)
        world.run()
        assert world.tokens[rid] == reference.greedy(source, prompt, COUNT)
    assert world.kv.sources is not None
    assert world.kv.sources.encoded_total == 1
    assert world.kv.sources.shared_total == 2
    assert world.cached["again"] == 20  # the prompt's whole pages
    assert world.cached["other"] == 0


def test_equal_prompts_of_other_sources_share_nothing(
    reference: SourceReference, worlds: Worlds
) -> None:
    world = worlds()
    for seed in (1, 2):
        ask(world, str(seed), reference.source(seed), PROMPTS[2], COUNT)
        world.run()
        expected = reference.greedy(reference.source(seed), PROMPTS[2], COUNT)
        assert world.tokens[str(seed)] == expected
        assert world.cached[str(seed)] == 0


@pytest.mark.parametrize("host", [False, True])
def test_a_pool_for_two_sources_serves_many(
    reference: SourceReference, worlds: Worlds, host: bool
) -> None:
    """Requests wait, are retracted, and find their sources evicted, or on the host."""
    world = worlds(pages=28, host=host, watermark=0.0, new_token_ratio=0.1)
    for index in range(8):
        ask(world, str(index), reference.source(index % 3), PROMPTS[index % 2], 30)
    world.run()
    for index in range(8):
        expected = reference.greedy(reference.source(index % 3), PROMPTS[index % 2], 30)
        assert world.tokens[str(index)] == expected
    assert world.kv.sources is not None
    assert world.scheduler.stats().retracted_requests_total > 0
    if not host:
        assert world.kv.sources.encoded_total > 3


def test_without_a_cache_equal_sources_share_pages_while_they_run(
    reference: SourceReference, worlds: Worlds
) -> None:
    world = worlds(radix_cache=False)
    for rid in ("one", "two"):
        ask(world, rid, reference.source(1), PROMPTS[1], COUNT)
    world.run()
    expected = reference.greedy(reference.source(1), PROMPTS[1], COUNT)
    assert world.tokens == {"one": expected, "two": expected}
    assert world.kv.sources is not None
    assert world.kv.sources.encoded_total == 1
    assert world.kv.cached_tokens == 0


def test_a_step_encodes_no_more_than_its_budget(reference: SourceReference, worlds: Worlds) -> None:
    world = worlds(encoder_tokens_per_step=60)
    for index in range(5):
        ask(world, str(index), reference.source(index), PROMPTS[0], 3)
    world.run()
    steps = [len(batch.sources.encode) for batch in world.batches if batch.sources]
    assert [count for count in steps if count] == [2, 2, 1]
    for index in range(5):
        assert world.tokens[str(index)] == reference.greedy(reference.source(index), PROMPTS[0], 3)


def test_waiting_sources_count_as_work_unless_they_are_cached(
    reference: SourceReference, worlds: Worlds
) -> None:
    world = worlds()
    ask(world, "first", reference.source(1), PROMPTS[1], 2)
    world.run()
    for seed in (1, 2):
        ask(world, str(seed), reference.source(seed), PROMPTS[1], 2)
    length = sent(reference.source(2)).length
    assert world.scheduler.stats().waiting_tokens == 2 * len(PROMPTS[1]) - PAGE_SIZE + length
    world.run()
    stats = world.scheduler.stats()
    assert stats.waiting_tokens == 0
    assert (stats.source_hits_total, stats.source_misses_total) == (1, 2)
    assert stats.source_tokens_total == 2 * length
