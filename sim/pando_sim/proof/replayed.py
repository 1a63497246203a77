"""What a replay measured."""

from pando_sim.proof.measures import Measures, quantile, ratio
from pando_sim.records import Outcome, Run, Sample


def replayed(run: Run, *, skip_s: float) -> Measures:
    """The run's numbers after `skip_s`, which is the recorded period's.

    All answers count as streamed, since the time to a first token does not depend on that.
    """
    arrivals = [one.arrival_s for one in run.served]
    span_s = max(arrivals) - min(arrivals) if arrivals else 0.0
    served = [one for one in run.served if one.arrival_s >= skip_s]
    answered = [one for one in served if one.outcome is Outcome.FINISHED]
    ttfts = [one.ttft_s for one in answered]
    gaps = [one.token_gap_s for one in answered if one.output_tokens > 1]
    return Measures(
        requests=len(served),
        span_s=span_s,
        skip_s=skip_s,
        replicas=_mean_replicas(run.samples, skip_s, skip_s + span_s),
        hit_rate=ratio(
            sum(one.cached_tokens for one in answered), sum(one.prompt_tokens for one in answered)
        ),
        refused=ratio(sum(one.outcome is Outcome.REFUSED for one in served), len(served)),
        ttft_p50=quantile(ttfts, 0.5),
        ttft_p99=quantile(ttfts, 0.99),
        gap_p50=quantile(gaps, 0.5),
        gap_p99=quantile(gaps, 0.99),
    )


def _mean_replicas(samples: list[Sample], begin_s: float, end_s: float) -> float | None:
    counts = [one.replicas for one in samples if begin_s <= one.at_s <= end_s]
    return sum(counts) / len(counts) if counts else None
