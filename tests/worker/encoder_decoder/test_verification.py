"""Outputs that the engine verifies in one step: what it would have chosen, token by token."""

from collections.abc import Iterator

import pytest

from pando_worker.messages import LogprobsWanted, Probe, SpeechRules, Verified, Verify
from tests.worker.encoder_decoder.checkpoints import START, Inputs, SourceReference, sent, whisper
from tests.worker.encoder_decoder.engines import Worlds, ask, engines_of
from tests.worker.scheduler.world import World
from tests.worker.vision.two_ranks import on_two_ranks

END, FIRST, COUNT = 60, 80, 14
TIMED = SpeechRules(
    end_token=END,
    suppressed=(5, 6, FIRST - 1, *range(END + 1, FIRST)),
    suppressed_first=(END, 10),
    first_timestamp=FIRST,
    max_initial=20,
)
UNTIMED = SpeechRules(end_token=END, suppressed=(5, 6), suppressed_first=(END, 10))
PROMPT = [START, 61, 62]
PROBE = Probe(position=0, token_ids=(7, 8))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SourceReference:
    return whisper(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def worlds(reference: SourceReference) -> Iterator[Worlds]:
    with engines_of(reference.path) as worlds:
        yield worlds


def decoded(world: World, source: Inputs, rules: SpeechRules, rid: str = "decoded") -> None:
    ask(world, rid, source, PROMPT, COUNT, rules=rules, logprobs=LogprobsWanted(), probe=PROBE)
    world.run()


def verify(
    world: World, source: Inputs, output: list[int], rules: SpeechRules, rid: str = "verified"
) -> None:
    command = Verify(
        rid=rid,
        input_ids=[*PROMPT, *output],
        first=len(PROMPT),
        source=sent(source),
        rules=rules,
        probe=PROBE,
    )
    world.collect(world.scheduler.receive(command))


def check(world: World, found: Verified, count: int) -> None:
    """Against the output that was decoded token by token."""
    assert found.choices[:count] == world.tokens["decoded"][:count]
    expected = [each.logprob for each in world.logprobs["decoded"]]
    assert found.logprobs[:count] == pytest.approx(expected[:count], abs=1e-4)
    assert found.probed == pytest.approx(world.probed["decoded"], abs=1e-4)


@pytest.mark.parametrize("rules", [TIMED, UNTIMED], ids=["timed", "untimed"])
@pytest.mark.parametrize("chunk", [4096, 4])
@pytest.mark.parametrize("pages", [256, 24])
def test_the_choices_are_the_tokens_that_decoding_gives(
    reference: SourceReference, worlds: Worlds, rules: SpeechRules, chunk: int, pages: int
) -> None:
    """In one step and in chunks, beside requests that decode, with room and without."""
    world = worlds(chunked_prefill_size=chunk, pages=pages, watermark=0.0, new_token_ratio=0.1)
    source = reference.source(1)
    decoded(world, source, rules)
    tokens = world.tokens["decoded"]
    ask(world, "beside", reference.source(2), PROMPT, COUNT)
    world.step()
    verify(world, source, tokens[:-1], rules)
    verify(world, source, [], rules, "empty")
    world.run()
    found = world.verified["verified"]
    assert len(found.choices) == COUNT
    check(world, found, COUNT)
    assert world.verified["empty"].choices == tokens[:1]
    assert world.tokens["beside"] == reference.greedy(reference.source(2), PROMPT, COUNT)
    world.kv.check_idle()


def test_a_wrong_token_is_noticed_where_it_is(reference: SourceReference, worlds: Worlds) -> None:
    world, source = worlds(), reference.source(1)
    decoded(world, source, UNTIMED)
    tokens = world.tokens["decoded"]
    wrong = [*tokens[:6], tokens[6] + 1, *tokens[7:]]
    verify(world, source, wrong, UNTIMED)
    world.run()
    check(world, world.verified["verified"], 7)
    assert world.verified["verified"].choices[6] != wrong[6]


def test_a_cached_encoding_is_used(reference: SourceReference, worlds: Worlds) -> None:
    world, source = worlds(), reference.source(1)
    verify(world, source, [20, 21], UNTIMED, "first")
    world.run()
    verify(world, source, [20, 21], UNTIMED, "again")
    world.run()
    first, again = world.verified["first"], world.verified["again"]
    assert (first.is_source_cached, again.is_source_cached) == (False, True)
    assert first.choices == again.choices
    assert world.kv.sources is not None
    assert world.kv.sources.encoded_total == 1


def test_two_ranks_choose_the_same(reference: SourceReference, worlds: Worlds) -> None:
    world, source = worlds(), reference.source(1)
    decoded(world, source, TIMED)
    with on_two_ranks(reference.path) as ranks:
        verify(ranks, source, world.tokens["decoded"][:-1], TIMED)
        ranks.run()
    check(world, ranks.verified["verified"], COUNT)


def test_what_cannot_be_verified_is_refused(reference: SourceReference, worlds: Worlds) -> None:
    world, source = worlds(), reference.source(1)
    commands = {
        "no prompt": Verify(
            rid="no prompt",
            input_ids=PROMPT,
            first=0,
            source=sent(source),
            rules=UNTIMED,
            probe=PROBE,
        ),
        "behind its end": Verify(
            rid="behind its end",
            input_ids=PROMPT,
            first=4,
            source=sent(source),
            rules=UNTIMED,
            probe=PROBE,
        ),
        "a probe in the output": Verify(
            rid="a probe in the output",
            input_ids=[*PROMPT, 9],
            first=3,
            source=sent(source),
            rules=UNTIMED,
            probe=Probe(position=3, token_ids=(7,)),
        ),
    }
    for rid, command in commands.items():
        world.collect(world.scheduler.receive(command))
        assert world.rejected[rid].status == 400
