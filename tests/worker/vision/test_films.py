"""Films in the engine: the tokens of transformers, however prompts are cut and cached."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_worker.messages import LogprobsWanted, SamplingParams
from tests.examples import examples
from tests.worker.vision.asked_films import AskedFilms, Film
from tests.worker.vision.checkpoints import IMAGE
from tests.worker.vision.engines import PAGE_SIZE, Worlds, engines_with
from tests.worker.vision.films import film
from tests.worker.vision.qwen import VIDEO, QwenSeer, save_qwen
from tests.worker.vision.ways import WAYS, Way

COUNT = 6
FAMILIES = ["qwen2-vl", "qwen2-vl, windows", "qwen2.5-vl", "qwen3-vl", "qwen3-vl-moe"]
NAMES = ["text", "one", "again", "other", "slow", "both"]


@pytest.fixture(scope="module", params=FAMILIES)
def seer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> QwenSeer:
    return QwenSeer(save_qwen(tmp_path_factory.mktemp("qwen"), request.param))


@pytest.fixture(scope="module")
def worlds(seer: QwenSeer) -> Iterator[Worlds]:
    with engines_with(seer) as worlds:
        yield worlds


@pytest.fixture(scope="module")
def asked(seer: QwenSeer) -> dict[str, AskedFilms]:
    cup, cat = Film(film("coffee.png"), 24, 8), Film(film("chelsea.png"), 24, 8)
    tall = Film(film("coffee.png", frames=13, rate=3, size=(48, 72)), 13, 3)

    def make(text: str, *films: Film, names: tuple[str, ...] = ()) -> AskedFilms:
        return AskedFilms(seer, text, names, films)

    return {
        "text": make("the quick brown fox"),
        "one": make(f"the {VIDEO} brown fox", cup),
        "again": make(f"the {VIDEO} lazy dog", cup),
        "other": make(f"the {VIDEO} brown fox", cat),
        "slow": make(f"{VIDEO}?", tall),
        "both": make(f"a {IMAGE} {VIDEO} and {VIDEO}", cat, cup, names=("astronaut.png",)),
    }


def test_the_films_are_what_the_tests_want(asked: dict[str, AskedFilms]) -> None:
    """Several frames each, of more than one row and column, whose numbers differ."""
    for name in NAMES[1:]:
        for frames in asked[name].frames:
            assert len(frames) >= 3
            assert len({frame.digest for frame in frames}) == len(frames)
            for frame in frames:
                assert frame.grid is not None
                _, rows, columns = frame.grid
                assert 1 < rows != columns > 1


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.permutations(NAMES), way=WAYS)
def test_tokens_are_those_of_transformers(
    worlds: Worlds, asked: dict[str, AskedFilms], names: list[str], way: Way
) -> None:
    """Text, films and photographs in one batch, prompts cut anywhere, whatever is kept."""
    way.assert_tokens(worlds, asked, names, COUNT)


def test_logits_are_those_of_transformers(worlds: Worlds, asked: dict[str, AskedFilms]) -> None:
    both = asked["both"]
    world = worlds(chunked_prefill_size=8)
    both.send(
        world,
        "scored",
        1,
        logprobs=LogprobsWanted(prompt_start=0),
        sampling=SamplingParams(max_new_tokens=1, temperature=0),
    )
    world.run()
    truth = both.logits().log_softmax(-1)
    found = torch.tensor([score.logprob for score in world.prompt_logprobs["scored"]])
    expected = truth[:-1].gather(1, torch.tensor(both.ids[1:])[:, None])[:, 0]
    torch.testing.assert_close(found, expected, atol=3e-4, rtol=1e-4)


def test_equal_films_share_what_is_cached_and_others_do_not(
    worlds: Worlds, asked: dict[str, AskedFilms]
) -> None:
    world = worlds()
    for name in ("one", "again", "other"):
        asked[name].send(world, name, COUNT)
        world.run()
    first, last = asked["one"].images[0], asked["one"].images[-1]
    assert last.start < world.cached["again"] <= last.start + last.length + PAGE_SIZE
    # What the texts in front of a film have in common may be cached, and no more.
    assert world.cached["other"] <= first.start
    assert world.tokens["again"] == asked["again"].greedy(COUNT)


def test_a_step_encodes_few_frames(worlds: Worlds, asked: dict[str, AskedFilms]) -> None:
    """So a long film stalls no stream: its frames are spread over steps."""
    one = asked["one"]
    world = worlds(image_tokens_per_step=1, chunked_prefill_size=1000)
    one.send(world, "one", COUNT)
    world.run()
    encoded = [len(batch.images.encode) for batch in world.batches if batch.images]
    assert max(encoded) == 1
    assert sum(encoded) == len(one.images)
