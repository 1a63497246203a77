"""Log-probabilities from the whole engine equal those of transformers, for prompts and outputs, and
come exactly once, for any chunks, hits, retractions and grammars."""

from collections.abc import Sequence
from contextlib import closing

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.messages import FinishReason, LogprobsWanted, SamplingParams
from pando_worker.server.jobs.constraints import grammar_of
from tests.worker.engine.served import Asked, Served, ask
from tests.worker.engine.truth import check_logprobs, check_output
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World

TOP = 3


def asked(
    rid: str, tokens: list[int], new: int, start: int | None = None, **sampling: float
) -> Asked:
    """A request, greedy by default, with the log-probabilities of the prompt from `start` on."""
    params = SamplingParams(max_new_tokens=new, **{"temperature": 0, **sampling})  # type: ignore[arg-type]
    return Asked(rid, tokens, params, LogprobsWanted(top=TOP, prompt_start=start))


def check(world: World, reference: Reference, requests: Sequence[Asked]) -> None:
    for one in requests:
        assert one.logprobs
        produced = world.tokens[one.rid]
        tokens, length = one.prompt + produced, len(one.prompt)
        check_output(reference, one.prompt, produced, one.sampling)
        check_logprobs(reference, tokens, length, world.logprobs[one.rid], TOP)
        start = one.logprobs.prompt_start
        first = length if start is None else max(1, start)
        check_logprobs(reference, tokens[:length], first, world.prompt_logprobs[one.rid], TOP)


def test_prompts_are_scored_over_chunks_and_after_hits(llama: Served, overlap: bool) -> None:
    """Hits end before the scored tokens; without scores they extend to the prompt's end."""
    world = llama.world(1024, overlap=overlap, chunked_prefill_size=8)
    shared = prompt(30)
    for turn in range(2):
        requests = [
            asked(f"all.{turn}", [*shared, *prompt(3, seed=1)], 4, start=0),
            asked(f"some.{turn}", [*shared[:21], *prompt(8, seed=2)], 4, start=11, temperature=1),
            asked(f"last.{turn}", [*shared[:16], *prompt(9, seed=3)], 4, start=24),
            asked(f"output.{turn}", [*shared[:25], *prompt(2, seed=4)], 4, frequency_penalty=2.0),
        ]
        ask(world, requests)
        world.run()
        check(world, llama.reference, requests)
    assert [world.cached[f"{rid}.1"] for rid in ("all", "some", "last", "output")] == [0, 8, 20, 24]


def test_what_was_scored_before_a_retraction_is_reported_once(llama: Served, overlap: bool) -> None:
    """Two requests produce tokens until one of them must wait, and so must a third one, whose
    prompt has scored chunks."""
    world = llama.world(84, overlap=overlap, chunked_prefill_size=8, new_token_ratio=0.01)
    pair = [asked(f"r{index}", prompt(9, seed=index), 38, start=2) for index in range(2)]
    ask(world, pair)
    while world.scheduler.planner.waiting or world.scheduler.planner.prefilling:
        world.step()
    late = asked("late", prompt(47, seed=2), 3, start=0)
    ask(world, [late])
    went_back: set[str] = set()
    while not world.scheduler.is_idle:
        before = [*world.scheduler.planner.prefilling, *world.scheduler.planner.running]
        world.step()
        waiting = [req for req in world.scheduler.planner.waiting if req in before]
        went_back |= {req.rid for req in waiting if req.cached_prompt_tokens is not None}
    assert went_back == {"late", "r1"}
    check(world, llama.reference, [*pair, late])


def test_with_a_grammar_each_token_has_its_own(with_tokenizer: Served, overlap: bool) -> None:
    """Forced tokens are normally taken without sampling, but not if log-probabilities are
    wanted."""
    reference = with_tokenizer.reference
    vocab_size = reference.model.config.vocab_size
    grammar = grammar_of(regex="(yes|no), because of (this|that)")
    plain = SamplingParams(max_new_tokens=30, temperature=0)
    sampled = {}
    with closing(GrammarCompiler(reference.path, vocab_size)) as grammars:
        for rid, wanted in (("jumps", None), ("tells", LogprobsWanted(top=TOP, prompt_start=4))):
            world = with_tokenizer.world(256, overlap=overlap, grammars=grammars)
            ask(world, [Asked(rid, prompt(9), plain, wanted, grammar)])
            world.run(max_steps=1_000_000)  # the compiler's threads take their time
            sampled[rid] = sum(len(batch.sample_rows) for batch in world.batches)
            assert world.finish[rid] is FinishReason.STOP
    tokens = prompt(9) + world.tokens["tells"]
    assert sampled["jumps"] < len(world.tokens["tells"]) <= sampled["tells"]
    check_logprobs(reference, tokens, 9, world.logprobs["tells"], TOP)
    check_logprobs(reference, prompt(9), 4, world.prompt_logprobs["tells"], TOP)
