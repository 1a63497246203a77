"""A short run of the fuzzer with seeds that reach most of its features."""

from pathlib import Path

from pando_worker.grammar.compiler import GrammarCompiler
from tests.fuzz.crowd import EOS, Truth
from tests.fuzz.engine import Tally, run_crowd
from tests.fuzz.models import SHIPPED, VOCAB, checkpoints

SEEDS = range(1, 7)


def test_a_few_crowds_get_the_tokens_of_transformers_and_leave_every_page(tmp_path: Path) -> None:
    grammars = GrammarCompiler(SHIPPED, VOCAB, [EOS])
    truth, tally = Truth(grammars), Tally()
    models = checkpoints(tmp_path)
    for seed in SEEDS:
        run_crowd(seed, models, grammars, truth, tally)
    reached = (
        tally.drawn_tokens,
        tally.aborted,
        tally.retracted,
        tally.evicted_tokens,
        tally.host_loaded_tokens,
        tally.with_windows,
        truth.jumps,
    )
    assert all(reached), f"choose seeds that reach more: {tally}, {truth.jumps} jumps"
