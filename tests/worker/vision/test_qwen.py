"""Models whose image tokens have positions in three dimensions: the tokens of transformers, for
images at their own size, however prompts are cut and cached."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_worker.messages import LogprobsWanted, SamplingParams
from tests.examples import examples
from tests.worker.scheduler.grammars import GrammarsForTests
from tests.worker.scheduler.world import World
from tests.worker.vision.engines import Worlds, engines_with
from tests.worker.vision.prompts import Asked, text_with
from tests.worker.vision.qwen import FAMILIES, QwenSeer, save_qwen
from tests.worker.vision.ways import WAYS, Way

COUNT = 8
CAT, COFFEE, FACE, PAGE = "chelsea.png", "coffee.png", "astronaut.png", "page.png"


@pytest.fixture(scope="module", params=FAMILIES)
def seer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> QwenSeer:
    return QwenSeer(save_qwen(tmp_path_factory.mktemp("qwen"), request.param))


@pytest.fixture(scope="module")
def worlds(seer: QwenSeer) -> Iterator[Worlds]:
    with engines_with(seer) as worlds:
        yield worlds


@pytest.fixture(scope="module")
def asked(seer: QwenSeer) -> dict[str, Asked]:
    def make(*parts: str, names: tuple[str, ...] = ()) -> Asked:
        return Asked(seer, text_with(*parts), names)

    return {
        "text": make("the quick brown fox"),
        "one": make("the ", " brown fox", names=(CAT,)),
        "one again": make("the ", " lazy dog", names=(CAT,)),
        "other": make("the ", " brown fox", names=(COFFEE,)),
        "two": make("over ", " and ", "?", names=(FACE, PAGE)),
        "twice": make("", "", "lazy", names=(COFFEE, COFFEE)),
        "last": make("the dog ", "", names=(FACE,)),
    }


NAMES = ["text", "one", "one again", "other", "two", "twice", "last"]


def test_the_photographs_have_the_grids_that_the_tests_want(asked: dict[str, Asked]) -> None:
    """Equal ones, unlike ones, all of more than one row and column, none of all columns equal."""
    grids = {name: [image.grid for image in asked[name].images] for name in NAMES}
    assert grids["one"] == grids["other"] == [(1, 4, 6)]
    assert grids["two"] == [(1, 5, 5), (1, 3, 7)]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.permutations(NAMES), way=WAYS)
def test_tokens_are_those_of_transformers(
    worlds: Worlds, asked: dict[str, Asked], names: list[str], way: Way
) -> None:
    """Text and images in one batch, prompts cut anywhere, whatever of images is kept."""
    way.assert_tokens(worlds, asked, names, COUNT)


def assert_tokens(world: World, rid: str, asked: Asked, before: Sequence[int]) -> None:
    """A request's tokens are those of transformers after `before`."""
    output = list(before)
    for token in world.tokens[rid]:
        logits = asked.logits(output)[-1]
        assert token == int(logits.argmax())
        output.append(token)


def test_a_cache_hit_may_end_inside_an_image(worlds: Worlds, asked: dict[str, Asked]) -> None:
    """And behind it, in a second turn."""
    world, one = worlds(), asked["one"]
    one.send(world, "one", COUNT)
    world.run()
    asked["one again"].send(world, "again", COUNT)
    asked["other"].send(world, "other", COUNT)
    output = [*world.tokens["one"], 5, 6]
    one.send(world, "second", COUNT, output=output, num_output=0, input_ids=[*one.ids, *output])
    world.run()
    image = one.images[0]
    assert image.start < world.cached["again"] < image.start + image.length
    assert world.cached["other"] <= image.start
    assert world.cached["second"] > image.start + image.length
    for rid, name in {"again": "one again", "other": "other"}.items():
        assert world.tokens[rid] == asked[name].greedy(COUNT)
    assert_tokens(world, "second", one, output)


@pytest.mark.parametrize("host", [False, True], ids=["", "host"])
def test_retracted_requests_get_the_tokens_of_transformers(
    worlds: Worlds, asked: dict[str, Asked], host: bool
) -> None:
    world = worlds(
        pages=22,
        image_tokens=1,
        chunked_prefill_size=8,
        new_token_ratio=0.01,
        watermark=0,
        host=host,
    )
    names = ["one", "other", "last", "text"]
    for name in names:
        asked[name].send(world, name, 20)
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    for name in names:
        assert world.tokens[name] == asked[name].greedy(20), name


def test_forced_tokens_of_a_grammar_follow_the_picture(
    worlds: Worlds, asked: dict[str, Asked]
) -> None:
    """Jump-forward: they run like a chunk of a prompt."""
    grammars, one = GrammarsForTests(), asked["one"]
    grammars.vocab_size = one.seer.model.config.get_text_config().vocab_size
    world = worlds(grammars=grammars)
    one.send(world, "forced", 12, grammar="3:20 21 22 23 24 …")
    asked["text"].send(world, "text", COUNT)
    world.run()
    assert len(world.tokens["forced"]) == 12
    assert world.tokens["forced"][3:8] == [20, 21, 22, 23, 24]
    output: list[int] = []
    for place, token in enumerate(world.tokens["forced"]):
        if place not in range(3, 8):
            logits = one.logits(output)[-1]
            assert token == int(logits.argmax())
        output.append(token)
    assert world.tokens["text"] == asked["text"].greedy(COUNT)


@pytest.mark.parametrize("how", [{"cpu_kernels": "on"}, {"graphs": True}], ids=["tapes", "graphs"])
def test_kernels_and_recorded_steps_compute_the_same(
    seer: QwenSeer, asked: dict[str, Asked], how: dict[str, Any]
) -> None:
    with engines_with(seer, **how) as worlds:
        for _ in range(2):  # the second run replays what the first recorded
            world = worlds(pages=255)
            for name in ("one", "two", "text"):
                asked[name].send(world, name, 20)
            world.run()
            for name in ("one", "two", "text"):
                assert world.tokens[name] == asked[name].greedy(20), name


def test_text_and_decodes_have_one_position_a_token(
    worlds: Worlds, asked: dict[str, Asked]
) -> None:
    """So CUDA graphs and recorded steps need no other form for images."""
    world = worlds()
    asked["text"].send(world, "text", COUNT)
    asked["one"].send(world, "one", COUNT)
    world.run()
    for batch in world.batches:
        assert batch.positions.ndim == (1 if batch.images is None else 2)
    image = asked["one"].images[0]
    last = world.batches[-1].seq_lens
    assert len(last) == 2
    assert image.grid is not None
    shift = max(image.grid) - image.length
    assert sorted(world.batches[-1].positions - last + 1) == [shift, 0]


def test_logits_are_those_of_transformers(worlds: Worlds, asked: dict[str, Asked]) -> None:
    two = asked["two"]
    world = worlds(chunked_prefill_size=8)
    two.send(
        world,
        "scored",
        1,
        logprobs=LogprobsWanted(prompt_start=0),
        sampling=SamplingParams(max_new_tokens=1, temperature=0),
    )
    world.run()
    truth = two.logits().log_softmax(-1)
    found = torch.tensor([score.logprob for score in world.prompt_logprobs["scored"]])
    expected = truth[:-1].gather(1, torch.tensor(two.ids[1:])[:, None])[:, 0]
    torch.testing.assert_close(found, expected, atol=3e-4, rtol=1e-4)
