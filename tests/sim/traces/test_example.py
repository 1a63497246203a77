"""The example trace of the repository."""

import subprocess
import sys
from pathlib import Path

from pando_sim.traces import open_trace
from tests.sim.traces.files import packed

TRACES = Path(__file__).parents[3] / "examples" / "traces"


def test_the_small_trace_is_what_its_generator_makes() -> None:
    made = subprocess.run(
        [sys.executable, TRACES / "make_small.py"], check=True, capture_output=True
    )
    assert made.stdout == (TRACES / "small.jsonl").read_bytes()
    assert len(made.stdout) < 200_000


def test_the_small_trace_has_conversations_that_begin_with_few_system_prompts() -> None:
    requests = list(open_trace(TRACES / "small.jsonl"))
    assert 200 < len(requests) < 1000
    assert len({request.prompt.keys()[:8] for request in requests}) == 3
    by_number = {request.number: request for request in requests}
    waiting = [request for request in requests if request.after is not None]
    assert len(waiting) > 100
    for request in waiting:
        assert request.after is not None
        before = by_number[request.after]
        assert before.session == request.session
        assert before.number < request.number
        whole = before.prompt.num_tokens // 512 * 8  # chunks of its full blocks
        keys = packed(before.prompt.keys())[:whole]
        assert packed(request.prompt.keys())[:whole] == keys
