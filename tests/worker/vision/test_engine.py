"""Images through scheduler, pools, cache and model: the tokens of transformers, whatever is cached,
cut, retracted or dropped."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pando_worker.messages import LogprobsWanted, SamplingParams
from tests.examples import examples
from tests.worker.scheduler.grammars import GrammarsForTests
from tests.worker.scheduler.world import World
from tests.worker.vision.checkpoints import Seer
from tests.worker.vision.engines import PAGE_SIZE, Worlds, engines_with
from tests.worker.vision.prompts import Asked, text_with
from tests.worker.vision.ways import WAYS, Way

COUNT = 8
CAT, COFFEE, ROCKET = "chelsea.png", "coffee.png", "rocket.jpg"


@pytest.fixture(scope="module")
def worlds(seer: Seer) -> Iterator[Worlds]:
    with engines_with(seer) as worlds:
        yield worlds


@pytest.fixture(scope="module")
def asked(seer: Seer) -> dict[str, Asked]:
    def make(*parts: str, names: tuple[str, ...] = ()) -> Asked:
        return Asked(seer, text_with(*parts), names)

    return {
        "text": make("the quick brown fox"),
        "one": make("the ", " brown fox", names=(CAT,)),
        "other": make("the ", " brown fox", names=(COFFEE,)),
        "two": make("over ", " and ", "?", names=(CAT, ROCKET)),
        "twice": make("", "", "lazy", names=(COFFEE, COFFEE)),
        "last": make("the dog ", "", names=(ROCKET,)),
    }


NAMES = ["text", "one", "other", "two", "twice", "last"]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.permutations(NAMES), way=WAYS)
def test_tokens_are_those_of_transformers(
    worlds: Worlds, asked: dict[str, Asked], names: list[str], way: Way
) -> None:
    """Text and images in one batch, prompts cut anywhere, whatever of images is kept."""
    way.assert_tokens(worlds, asked, names, COUNT)


def test_equal_images_share_their_pages_and_different_ones_do_not(
    worlds: Worlds, asked: dict[str, Asked]
) -> None:
    world = worlds()
    before = len(asked["one"].ids[: asked["one"].images[0].start])
    assert asked["one"].ids == asked["other"].ids, "only the images differ"
    asked["one"].send(world, "first", COUNT)
    world.run()
    asked["one"].send(world, "again", COUNT)
    asked["other"].send(world, "other", COUNT)
    world.run()
    assert world.cached["first"] == 0
    assert world.cached["again"] == (len(asked["one"].ids) - 1) // PAGE_SIZE * PAGE_SIZE
    assert world.cached["other"] == before // PAGE_SIZE * PAGE_SIZE
    for rid, name in {"first": "one", "again": "one", "other": "other"}.items():
        assert world.tokens[rid] == asked[name].greedy(COUNT)


def encoded(world: World) -> list[bytes]:
    """Digests of the images that the tower encoded, in order."""
    return [
        image.digest
        for batch in world.batches
        if batch.images is not None
        for image in batch.images.encode
    ]


def test_each_image_is_encoded_once(worlds: Worlds, asked: dict[str, Asked]) -> None:
    """Though two requests that wait together have it, chunks cut it, and it comes twice."""
    world = worlds(chunked_prefill_size=8)
    for name in ("one", "two", "twice", "other"):
        asked[name].send(world, name, COUNT)
    world.run()
    digests = {image.digest for name in ("two", "twice") for image in asked[name].images}
    assert sorted(encoded(world)) == sorted(digests)


def test_what_the_cache_holds_is_not_encoded(worlds: Worlds, asked: dict[str, Asked]) -> None:
    """The second turn, with no embeddings kept: its prompt goes on behind the picture."""
    world = worlds(image_tokens=1)
    first = asked["one"]
    first.send(world, "first", COUNT)
    world.run()
    asked["text"].send(world, "text", COUNT)
    second = [*first.ids, *world.tokens["first"], 5, 6]
    first.send(world, "second", COUNT, input_ids=second)
    world.run()
    assert len(encoded(world)) == 1
    image = first.images[0]
    assert world.cached["second"] >= image.start + image.length
    output = [*first.greedy(COUNT), 5, 6]
    for token in world.tokens["second"]:
        assert token == int(first.logits(output)[-1].argmax())
        output.append(token)


def test_text_alone_brings_no_image_to_its_batches(worlds: Worlds, asked: dict[str, Asked]) -> None:
    world = worlds()
    asked["text"].send(world, "text", COUNT)
    world.run()
    assert all(batch.images is None for batch in world.batches)


@pytest.mark.parametrize("host", [False, True], ids=["", "host"])
def test_retracted_requests_get_the_tokens_of_transformers(
    worlds: Worlds, asked: dict[str, Asked], host: bool
) -> None:
    names = ["one", "other", "last", "text"]
    longest = max(len(asked[name].ids) for name in names)
    retracted = loaded = 0
    for room in (8, 12, 16):  # beside two prompts: for some of their output
        world = worlds(
            pages=(2 * longest + room) // PAGE_SIZE,
            image_tokens=1,
            chunked_prefill_size=8,
            new_token_ratio=0.01,
            watermark=0,
            host=host,
        )
        for name in names:
            asked[name].send(world, name, 20)
        world.run()
        for name in names:
            assert world.tokens[name] == asked[name].greedy(20), name
        retracted += world.scheduler.stats().retracted_requests_total
        loaded += world.scheduler.stats().host_loaded_tokens_total
    assert retracted > 0
    assert (loaded > 0) is host


def test_no_more_is_encoded_in_a_step_than_its_budget(
    worlds: Worlds, asked: dict[str, Asked]
) -> None:
    """A budget that is too small for three images by a token, and one for less than an image."""
    names = ("one", "other", "last")
    tokens = sum(asked[name].ids.count(asked[name].seer.image_token) for name in names)
    for budget, most in ((tokens - 1, 2), (1, 1)):
        world = worlds(image_tokens_per_step=budget)
        for name in names:
            asked[name].send(world, name, COUNT)
        world.run()
        counts = [len(batch.images.encode) for batch in world.batches if batch.images]
        assert max(counts) == most
        assert sum(counts) == 3


def test_penalties_and_prompt_scores_see_the_image_token(
    worlds: Worlds, asked: dict[str, Asked]
) -> None:
    """As in transformers, an image's tokens are the vocabulary's image token, repeated."""
    world, one = worlds(), asked["one"]
    one.send(
        world,
        "scored",
        COUNT,
        logprobs=LogprobsWanted(prompt_start=0),
        sampling=SamplingParams(max_new_tokens=COUNT, temperature=0, repetition_penalty=1.3),
    )
    world.run()
    truth = one.logits().log_softmax(-1)
    found = world.prompt_logprobs["scored"]
    assert len(found) == len(one.ids) - 1
    for position, (token, score) in enumerate(zip(one.ids[1:], found, strict=True)):
        assert score.logprob == pytest.approx(float(truth[position, token]), abs=2e-4)
    output: list[int] = []
    for token in world.tokens["scored"]:
        logits = one.logits(output)[-1].clone()
        for seen in {*one.ids, *output}:
            logits[seen] *= 1.3 if logits[seen] < 0 else 1 / 1.3
        assert token == int(logits.argmax())
        output.append(token)


def test_a_model_that_reads_text_only_refuses_images(asked: dict[str, Asked]) -> None:
    world = World()
    asked["one"].send(world, "one", COUNT)
    assert world.rejected["one"].status == 400
    assert "reads text only" in world.rejected["one"].message


def test_forced_tokens_of_a_grammar_follow_the_picture(
    worlds: Worlds, asked: dict[str, Asked]
) -> None:
    """Jump-forward: they run like a chunk of a prompt."""
    grammars, one = GrammarsForTests(), asked["one"]
    grammars.vocab_size = one.seer.model.config.get_text_config().vocab_size
    world = worlds(grammars=grammars)
    one.send(world, "forced", 12, grammar="3:20 21 22 23 24 …")
    world.run()
    assert world.tokens["forced"][3:8] == [20, 21, 22, 23, 24]
    output: list[int] = []
    for place, token in enumerate(world.tokens["forced"]):
        if place not in range(3, 8):
            logits = one.logits(output)[-1]
            assert token == int(logits.argmax())
        output.append(token)


def test_kernels_compute_the_same(seer: Seer, asked: dict[str, Asked]) -> None:
    """Those for a CPU, which read the pool's pages."""
    with engines_with(seer, cpu_kernels="on") as worlds:
        world = worlds(chunked_prefill_size=12)
        for name in NAMES:
            asked[name].send(world, name, COUNT)
        world.run()
        assert any(batch.images for batch in world.batches)
    for name in NAMES:
        assert world.tokens[name] == asked[name].greedy(COUNT), name
