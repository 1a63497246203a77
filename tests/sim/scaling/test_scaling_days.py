"""The benchmark's own arithmetic: the Pareto front, and costs along it."""

from pathlib import Path

from pytest import approx

from bench.simulator.scaling_days.contenders import Contender, contenders
from bench.simulator.scaling_days.front import against, front, hours_on, rivals
from bench.simulator.scaling_days.loads import answers
from bench.simulator.scaling_days.means import means
from bench.simulator.scaling_days.runs import Result


def result(
    hours: float, violations: float, scaler: str = "hpa_queue", knob: float = 1.0, day: int = 1
) -> Result:
    return Result(
        day=day,
        hours=24.0,
        load="answers",
        start_s=60.0,
        scaler=scaler,
        knob=knob,
        requests=1000,
        replica_hours=hours,
        violations=violations,
        late=violations,
        refused=0,
        ttft_p50_s=0.1,
        ttft_p99_s=1.0,
        hit_rate=0.0,
        most_replicas=4,
        changes=10,
        wall_s=1.0,
    )


def test_a_front_has_no_run_that_another_one_beats() -> None:
    cheap, beaten, dear = result(10, 0.2), result(15, 0.2), result(20, 0.1)
    assert front([dear, beaten, cheap]) == [cheap, dear]


def test_between_two_runs_a_front_pays_what_lies_between() -> None:
    both = [result(10, 0.2), result(20, 0.1)]
    assert hours_on(both, 0.15) == 15
    assert hours_on(both, 0.3) == 10


def test_no_front_pays_for_fewer_violations_than_any_run_has() -> None:
    assert hours_on([result(10, 0.2)], 0.1) is None
    assert against(result(10, 0.1), [result(10, 0.2)]) is None


def test_what_a_run_pays_more_than_the_front_is_a_share_of_the_front() -> None:
    assert against(result(18, 0.15, "pando"), [result(10, 0.2), result(20, 0.1)]) == approx(0.2)


def test_our_own_runs_are_no_rivals() -> None:
    mine = [result(10, 0.1, name) for name in ("pando", "pando, queueWait")]
    assert rivals([*mine, other := result(20, 0.2)]) == [other]


def test_the_first_contenders_are_one_of_each_scaler(tmp_path: Path) -> None:
    load = answers(1, tmp_path)
    first = contenders(load)[: len(load.knobs)]
    assert first == [Contender(scaler, knobs[0]) for scaler, knobs in load.knobs.items()]


def test_a_day_has_the_same_load_again_and_another_day_another(tmp_path: Path) -> None:
    once = answers(1, tmp_path).trace.read_bytes()
    assert answers(1, tmp_path).trace.read_bytes() == once
    assert answers(2, tmp_path).trace.read_bytes() != once


def test_days_of_one_contender_come_to_their_mean() -> None:
    days = [result(10, 0.2), result(20, 0.1, day=2), result(30, 0.3, knob=2.0)]
    merged, other = means(days)
    assert merged.replica_hours == 15
    assert merged.violations == approx(0.15)
    assert (merged.requests, merged.knob) == (1000, 1.0)
    assert other == days[2]
