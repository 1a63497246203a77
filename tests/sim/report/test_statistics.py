"""Statistics of a run, compared with values computed by hand or by a plain loop."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_sim.records import Outcome, Run, Sample, Served
from pando_sim.report.columns import columns
from pando_sim.report.digest import digest
from pando_sim.report.statistics import Statistics, load_spread
from tests.sim.report.made_runs import made_run, served


def sample(at_s: float, ready: int, replica_seconds: float = 0.0) -> Sample:
    return Sample(
        at_s=at_s,
        replicas=ready,
        ready=ready,
        draining=0,
        queued=0,
        waiting=0,
        running=0,
        capacity_tokens=1000,
        pinned_tokens=100,
        cached_tokens=300,
        arrived=0,
        finished=0,
        prompt_tokens=0,
        cached_prompt_tokens=0,
        output_tokens=0,
        replica_seconds=replica_seconds,
    )


def statistics_of(*requests: Served, samples: tuple[Sample, ...] = ()) -> Statistics:
    run = Run(policy="p", scaling="none", seed=0, cost_model="", settings={})
    run.served, run.samples = list(requests), list(samples)
    return digest(run, slow_ttft_s=2.0, slow_gap_s=0.05, gpus_per_replica=2).statistics


def test_hit_rate_is_of_tokens_that_replicas_had_and_not_of_those_promised() -> None:
    found = statistics_of(
        served(prompt_tokens=100, matched_tokens=64, cached_tokens=32),
        served(prompt_tokens=300, matched_tokens=64, cached_tokens=0),
    )
    assert found.hit_rate == 32 / 400
    assert found.matched_rate == 128 / 400


def test_goodput_counts_requests_in_time_of_all_that_came() -> None:
    in_time = served(first_token_s=1.9, end_s=1.9 + 9 * 0.049)
    late = served(first_token_s=2.1, end_s=2.2)
    slow = served(first_token_s=1.0, end_s=1.0 + 9 * 0.06)
    refused = served(first_token_s=math.nan, outcome=Outcome.REFUSED, output_tokens=0)
    single = served(output_tokens=1, end_s=1.0)
    found = statistics_of(in_time, late, slow, refused, single)
    assert found.goodput == 2 / 5
    assert (found.finished, found.refused, found.failed) == (4, 1, 0)


def test_percentiles_leave_out_requests_without_a_first_token() -> None:
    answered = [served(first_token_s=0.1 * n, end_s=20.0) for n in range(1, 101)]
    refused = served(first_token_s=math.nan, placed_s=math.nan, outcome=Outcome.REFUSED)
    found = statistics_of(*answered, refused)
    assert found.ttft is not None
    assert found.ttft.p50 == pytest.approx(5.05)
    assert found.ttft.p99 == pytest.approx(9.901)
    assert found.ttft.most == pytest.approx(10.0)
    assert found.queue_wait is not None
    assert found.queue_wait.most == 0.0


def test_a_single_token_has_no_gap() -> None:
    assert statistics_of(served(output_tokens=1, end_s=1.0)).gap is None


def test_throughput_is_over_the_time_from_first_arrival_to_last_end() -> None:
    found = statistics_of(
        served(arrival_s=10.0, placed_s=10.0, first_token_s=11.0, end_s=15.0, output_tokens=40),
        served(arrival_s=12.0, placed_s=12.0, first_token_s=13.0, end_s=30.0, output_tokens=60),
    )
    assert found.duration_s == 20.0
    assert found.output_tokens_per_s == 5.0


def test_gpu_hours_are_replica_hours_times_the_gpus_of_each() -> None:
    found = statistics_of(served(), samples=(sample(0.0, 4), sample(1800.0, 4, 7200.0)))
    assert found.replica_hours == 2.0
    assert found.gpu_hours == 4.0
    assert found.mean_replicas == 4.0


def test_an_even_load_has_spread_one_and_a_single_busy_replica_their_number() -> None:
    even = [served(replica=f"replica-{n % 4}") for n in range(40)]
    lonely = [served(replica="replica-0") for _ in range(40)]
    assert load_spread(columns(even), [sample(0.0, 4)]) == pytest.approx(1.0)
    assert load_spread(columns(lonely), [sample(0.0, 4)]) == pytest.approx(4.0)


def test_a_run_without_requests_has_no_rates_and_no_division_by_zero() -> None:
    found = statistics_of()
    assert found.goodput is None
    assert found.hit_rate is None
    assert found.ttft is None
    assert found.output_tokens_per_s == 0.0


_SERVED = st.builds(
    lambda ttft, gap, output, outcome: served(
        first_token_s=math.nan if outcome is Outcome.REFUSED else ttft,
        end_s=ttft + gap * (output - 1),
        output_tokens=output,
        outcome=outcome,
    ),
    st.floats(0.0, 4.0),
    st.floats(0.0, 0.1),
    st.integers(1, 5),
    st.sampled_from(Outcome),
)


@given(st.lists(_SERVED, min_size=1, max_size=30))
def test_goodput_is_what_a_loop_over_the_records_counts(requests: list[Served]) -> None:
    good = sum(
        one.outcome is Outcome.FINISHED and one.ttft_s <= 2.0 and one.token_gap_s <= 0.05
        for one in requests
    )
    assert statistics_of(*requests).goodput == good / len(requests)


def test_series_are_as_long_for_many_requests_as_for_some() -> None:
    def lengths(requests: int) -> list[int]:
        run = made_run("p", requests=requests, scaling="pando")
        found = digest(run, slow_ttft_s=2.0, slow_gap_s=0.05, gpus_per_replica=1).series
        return [
            len(found.requests.at_s),
            len(found.load.at_s),
            len(found.pool.at_s),
            len(found.distribution.share),
        ]

    assert lengths(6000) == lengths(12_000)


def test_kv_parts_add_up_to_the_capacity() -> None:
    run = made_run("p", requests=500)
    pool = digest(run, slow_ttft_s=2.0, slow_gap_s=0.05, gpus_per_replica=1).series.pool
    for parts in zip(pool.pinned_tokens, pool.cached_tokens, pool.free_tokens, strict=True):
        assert sum(parts) == pytest.approx(400_000, rel=1e-5)


def test_a_curve_of_all_requests_ends_below_one_where_some_were_refused() -> None:
    run = made_run("p", requests=1000, slowness=3.0)
    refused = sum(one.outcome is Outcome.REFUSED for one in run.served)
    found = digest(run, slow_ttft_s=2.0, slow_gap_s=0.05, gpus_per_replica=1).series.distribution
    assert refused
    assert found.share[-1] == pytest.approx(1 - refused / 1000)


def test_hit_rate_over_time_agrees_with_the_whole_run() -> None:
    run = made_run("p", requests=2000)
    run.served = [replace(one, prompt_tokens=100, cached_tokens=40) for one in run.served]
    found = digest(run, slow_ttft_s=2.0, slow_gap_s=0.05, gpus_per_replica=1).series.requests
    assert set(found.hit_rate) == {0.4}
