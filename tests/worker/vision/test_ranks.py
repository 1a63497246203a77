"""Every family on one rank and on two: the tokens and embeddings of transformers, for several
choices of one prompt, beside text."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from pando_worker.messages import Embed, Pooling
from tests.worker.scheduler.world import World
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.engines import engines_with
from tests.worker.vision.every import EVERY
from tests.worker.vision.families import save_llava
from tests.worker.vision.prompts import Asked, text_with
from tests.worker.vision.two_ranks import follow_with_a_fault, on_two_ranks

COUNT = 5
IN_EACH_RUN = ("llava", "gemma3", "qwen2.5-vl", "qwen3-vl-moe")
"""On two ranks: decoders with one position a token, with windows and marks of images, with three
positions, and with experts and features of the tower in their layers. The others are `long`."""


@pytest.fixture(scope="module")
def seer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seer:
    return EVERY[request.param](tmp_path_factory.mktemp("model"))


@contextmanager
def on_one_rank(model: Path) -> Iterator[World]:
    with engines_with(Seer(model)) as worlds:
        yield worlds(chunked_prefill_size=24)


RANKS = {1: on_one_rank, 2: on_two_ranks}


def engine_on(ranks: int, seer: Seer) -> AbstractContextManager[World]:
    return RANKS[ranks](seer.path)


CASES = [
    pytest.param(
        family,
        ranks,
        marks=[pytest.mark.long] if ranks == 2 and family not in IN_EACH_RUN else [],
        id=f"{family}-{ranks}",
    )
    for family in EVERY
    for ranks in RANKS
]


@pytest.mark.parametrize(("seer", "ranks"), CASES, indirect=["seer"], scope="module")
def test_choices_and_embeddings_are_those_of_transformers(seer: Seer, ranks: int) -> None:
    """Two choices of a prompt are two requests, whose image is encoded once. A prompt is embedded
    by its last token, from what is cached of it, and by the mean of all its tokens."""
    text = Asked(seer, text_with("the quick brown fox"))
    two = Asked(seer, text_with("over ", " and ", "?"), ("chelsea.png", "coffee.png"))
    with engine_on(ranks, seer) as world:
        for name in ("two#0", "two#1"):
            two.send(world, name, COUNT)
        text.send(world, "text", COUNT)
        world.run()
        assert world.tokens["two#0"] == world.tokens["two#1"] == two.greedy(COUNT)
        assert world.tokens["text"] == text.greedy(COUNT)
        steps = [batch.images for batch in world.batches if batch.images]
        encoded = [image.digest for step in steps for image in step.encode]
        assert sorted(encoded) == sorted({image.digest for image in two.images})
        hidden = seer.hidden(two.text, two.pictures).double().numpy()
        for pooling, pooled in ((Pooling.LAST, hidden[-1]), (Pooling.MEAN, hidden.mean(0))):
            embed(world, pooling, two)
            world.run()
            expected = pooled / np.linalg.norm(pooled)
            np.testing.assert_allclose(world.embeddings[pooling], expected, atol=2e-5)
        assert world.cached[Pooling.LAST] > 0
        assert world.cached[Pooling.MEAN] == 0


def embed(world: World, pooling: Pooling, asked: Asked) -> None:
    world.tokens[pooling] = []
    command = Embed(rid=pooling, input_ids=asked.ids, pooling=pooling, images=asked.images)
    world.collect(world.scheduler.receive(command))


def test_an_image_that_fails_on_one_rank_fails_on_all(tmp_path: Path) -> None:
    """Otherwise the ranks would compute with unlike embeddings."""
    seer = Seer(save_llava(tmp_path))
    text = Asked(seer, text_with("the quick brown fox"))
    one = Asked(seer, text_with("the ", " fox"), ("chelsea.png",))
    with on_two_ranks(seer.path, follow_with_a_fault) as world:
        one.send(world, "one", COUNT)
        text.send(world, "text", COUNT)
        world.run()
    assert world.rejected["one"].status == 500
    assert world.tokens["text"] == text.greedy(COUNT)
