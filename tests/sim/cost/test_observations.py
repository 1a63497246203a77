"""Observations of a worker, compared with its steps, computed by hand."""

import pytest

from pando_sim.cost import CostModel
from pando_sim.cost.calibration.client import Heard
from pando_sim.cost.calibration.design import Alone, Behind, Interrupted, Limits, Together, design
from pando_sim.cost.calibration.errors import CalibrationError
from pando_sim.cost.calibration.fitting import fit_model
from pando_sim.cost.calibration.observations import (
    Observation,
    Step,
    chunks,
    decoding,
    first_token,
    interrupted,
    middle,
)
from pando_sim.cost.schema import CostFile, RequestCost, StepCost
from pando_worker.scheduler.batches.context_cost import attended

TRUTH = CostModel(
    CostFile(
        name="truth",
        model="m",
        machine="a desk",
        source="by hand",
        date="2026-01-01",
        step=StepCost(
            step_s=2e-3,
            token_s=1e-4,
            free_tokens=64,
            prefill_step_s=1e-3,
            prefill_context_s=2e-7,
            decode_row_s=3e-4,
            decode_context_s=1e-6,
        ),
        request=RequestCost(request_s=4e-3, prompt_token_s=5e-6),
    )
)


def told(step: Step, model: CostModel = TRUTH) -> float:
    return model.step_s(
        step.prefill_tokens, step.prefill_context, step.decodes, round(step.decode_context)
    )


def alone(prompt: int, cached: int, chunk: int) -> Observation:
    """The observation of a worker with exactly the true costs."""
    seconds = TRUTH.request_s(prompt)
    for begin in range(cached, prompt, chunk):
        size = min(chunk, prompt - begin)
        seconds += TRUTH.step_s(size, attended(begin, size))
    heard = Heard(10.0, (10.0 + seconds,), prompt, cached, 1)
    return first_token(f"{prompt} behind {cached}", heard, chunk)


def stream(sent_s: float, begin_s: float, rows: int, prompt: int, output: int) -> Heard:
    """One of `rows` equal requests that decode from `begin_s` on."""
    times, at_s = [begin_s], begin_s
    for produced in range(1, output):
        at_s += TRUTH.step_s(decodes=rows, decode_context=rows * (prompt + produced))
        times.append(at_s)
    return Heard(sent_s, tuple(times), prompt, prompt - 1, output)


def test_a_prompt_is_computed_in_chunks_behind_what_is_cached() -> None:
    steps = chunks(100, 250, 100)
    assert [step.prefill_tokens for step in steps] == [100, 100, 50]
    assert [step.prefill_context for step in steps] == [
        attended(100, 100),
        attended(200, 100),
        attended(300, 50),
    ]


def test_a_first_token_takes_the_request_and_its_steps() -> None:
    seen = alone(1000, 96, 512)
    assert seen.prompt_tokens == 1000
    assert seen.seconds == pytest.approx(TRUTH.request_s(1000) + sum(map(told, seen.steps)))


def test_requests_that_decode_together_show_the_mean_step() -> None:
    # They start one after another, and only the time counts in which all four decode.
    heard = [stream(0.0, 1.0, 4, 500, 40) for _ in range(3)]
    late = stream(0.0, heard[0].token_s[10], 4, 500, 40)
    seen = decoding("", [*heard, late])
    assert seen is not None
    assert seen.steps[0].decodes == 4
    assert seen.seconds == pytest.approx(told(seen.steps[0]), rel=0.02)


def test_tokens_that_are_not_heard_of_count_all_the_same() -> None:
    whole = stream(0.0, 1.0, 1, 500, 41)
    half = Heard(0.0, whole.token_s[::2], 500, 499, 41)
    seen, truth = decoding("", [half]), decoding("", [whole])
    assert seen is not None
    assert truth is not None
    assert seen.seconds == pytest.approx(truth.seconds, rel=0.01)


def test_requests_that_hardly_overlap_show_nothing() -> None:
    first = stream(0.0, 1.0, 1, 100, 20)
    late = stream(0.0, first.token_s[-3], 1, 100, 20)
    assert decoding("", [first, late]) is None


def test_a_stream_is_silent_while_a_prompt_is_computed() -> None:
    times = [0.0, 0.01, 0.02, 0.13, 0.14]
    running = Heard(-1.0, tuple(times), 32, 0, len(times))
    other = Heard(0.015, (0.132,), 300, 48, 1)
    seen = interrupted("", running, other, 4096)
    assert seen is not None
    assert seen.seconds == pytest.approx(0.11)
    (step,) = seen.steps
    assert (step.prefill_tokens, step.prefill_context) == (252, attended(48, 252))
    assert (step.decodes, step.decode_context) == (1, 32 + 3)


@pytest.mark.parametrize(
    "other",
    [
        Heard(0.2, (0.3,), 300, 0, 1),  # the stream had ended
        Heard(0.015, (0.132,), 5000, 0, 1),  # several chunks
    ],
)
def test_a_prompt_that_says_nothing_of_one_step_is_left_out(other: Heard) -> None:
    running = Heard(-1.0, (0.0, 0.01, 0.12, 0.13), 32, 0, 4)
    assert interrupted("", running, other, 4096) is None


def test_the_median_of_the_repetitions_counts() -> None:
    seen = [Observation("", seconds, ()) for seconds in (5.0, 1.0, 9.0, 2.0, 3.0)]
    assert middle(seen).seconds == 3.0


def exact() -> list[Observation]:
    prompts = [(64, 0), (64, 48), (300, 0), (1000, 0), (1000, 992), (3000, 0), (3000, 2992)]
    prompts += [(1256, 1000), (2256, 2000), (6000, 0), (6000, 5984)]
    steps = [
        Step(decodes=rows, decode_context=rows * at) for rows in (1, 8, 80) for at in (99, 3000)
    ]
    steps += [
        Step(prefill_tokens=size, prefill_context=attended(0, size), decodes=1, decode_context=99)
        for size in (200, 800, 2000)
    ]
    return [alone(*prompt, 2048) for prompt in prompts] + [
        Observation("", told(step), (step,)) for step in steps
    ]


def test_exact_observations_give_the_cost_model_back() -> None:
    fitted = fit_model(exact())
    truth = TRUTH.file
    assert fitted.step.free_tokens == 64
    for name in ("step_s", "token_s", "prefill_context_s", "decode_row_s", "decode_context_s"):
        assert getattr(fitted.step, name) == pytest.approx(getattr(truth.step, name), rel=0.02)
    assert fitted.step.prefill_step_s == pytest.approx(1e-3, rel=0.05)
    assert fitted.request.request_s == pytest.approx(4e-3, rel=0.05)
    assert fitted.quality.largest_error < 0.005


def test_without_any_recorded_step_there_is_no_model() -> None:
    only = [Observation("", 1e-5 * tokens, (), tokens) for tokens in (10, 100, 1000)]
    with pytest.raises(CalibrationError, match="too few"):
        fit_model(only)


def test_measurements_keep_within_the_limits() -> None:
    limits = Limits(longest_prompt=4096, capacity_tokens=9000, most_together=48, chunk_tokens=1024)
    measurements = design(limits)
    for one in measurements:
        match one:
            case Alone(tokens=tokens):
                assert tokens < 4096
            case Behind(cached=cached, tokens=tokens):
                assert cached + tokens < 4096
            case Together(requests=requests, tokens=tokens):
                assert requests <= 48
                assert requests * tokens < 9000
            case Interrupted(tokens=tokens):
                assert tokens < 1024
    assert {type(one) for one in measurements} == {Alone, Behind, Interrupted, Together}
