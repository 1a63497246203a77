"""Every family on two ranks: the tokens of transformers."""

from pathlib import Path

import pytest

from tests.worker.encoder_decoder.checkpoints import MODELS, START
from tests.worker.encoder_decoder.engines import ask
from tests.worker.vision.two_ranks import on_two_ranks

COUNT = 6


@pytest.mark.parametrize("model", MODELS)
def test_tokens_on_two_ranks_are_those_of_transformers(model: str, tmp_path: Path) -> None:
    reference = MODELS[model](tmp_path)
    prompts = [[START, 50], [START, *range(20, 43)], [START, 7, 8]]
    sources = [reference.source(seed) for seed in (1, 2, 1)]
    with on_two_ranks(reference.path) as world:
        for index, (source, prompt) in enumerate(zip(sources, prompts, strict=True)):
            ask(world, str(index), source, prompt, COUNT)
        world.run()
        assert world.kv.sources is not None
        assert world.kv.sources.encoded_total == 2
    expected = [reference.greedy(*each, COUNT) for each in zip(sources, prompts, strict=True)]
    assert [world.tokens[str(index)] for index in range(3)] == expected
