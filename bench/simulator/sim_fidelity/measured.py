"""The results by which both sides are compared."""

import statistics
from collections.abc import Sequence

import msgspec


class Answer(msgspec.Struct, frozen=True):
    ttft_s: float
    end_s: float  # since the request was sent
    prompt_tokens: int
    cached_tokens: int
    replica: str


class Outcome(msgspec.Struct, frozen=True):
    hit_rate: float  # cached prompt tokens, as a share
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_mean_s: float
    end_mean_s: float
    busiest_share: float  # of the requests, at the replica with the most

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> "Outcome":
        ttfts = sorted(answer.ttft_s for answer in answers)
        replicas = [answer.replica for answer in answers]
        return cls(
            hit_rate=sum(a.cached_tokens for a in answers) / sum(a.prompt_tokens for a in answers),
            ttft_p50_s=statistics.median(ttfts),
            ttft_p90_s=ttfts[int(0.9 * (len(ttfts) - 1))],
            ttft_mean_s=statistics.fmean(ttfts),
            end_mean_s=statistics.fmean(answer.end_s for answer in answers),
            busiest_share=max(map(replicas.count, set(replicas))) / len(replicas),
        )

    @classmethod
    def mean(cls, outcomes: Sequence["Outcome"]) -> "Outcome":
        """The mean of each number."""
        rows = zip(*(msgspec.structs.astuple(one) for one in outcomes), strict=True)
        return cls(*map(statistics.fmean, rows))
