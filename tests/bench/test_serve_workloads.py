"""The load generator's requests: lengths, shared prefixes and pace, determined by a seed."""

import gzip
import itertools
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.fleet.serving.arrivals import constant, poisson, recorded
from bench.fleet.serving.client import Record
from bench.fleet.serving.statistics import Slo, percentile, summarize
from bench.fleet.serving.workloads import (
    Lengths,
    Session,
    TextMaker,
    multi_turn,
    random_prompts,
    read_trace,
    shared_prefix,
    traced,
)

MAKER = TextMaker(tokens_per_word=1.25, overhead_tokens=5)
LONG, SHORT = Lengths(100, 0.5), Lengths(20)

WORKLOADS: list[Callable[[int], Iterator[Session]]] = [
    lambda seed: random_prompts(MAKER, LONG, SHORT, seed),
    lambda seed: shared_prefix(MAKER, 3, 40, LONG, SHORT, seed),
    lambda seed: multi_turn(MAKER, 3, 40, LONG, SHORT, seed),
]


def first(sessions: Iterator[Session], count: int) -> list[Session]:
    return list(itertools.islice(sessions, count))


def shared_words(a: str, b: str) -> int:
    """How many leading words are equal; one more than intended may be equal by chance."""
    pairs = zip(a.split(), b.split(), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_seed_fixes_all_that_is_sent(workload: Callable[[int], Iterator[Session]]) -> None:
    assert first(workload(1), 5) == first(workload(1), 5)
    assert first(workload(1), 5) != first(workload(2), 5)


def test_random_prompts_have_the_lengths_asked_for_and_share_nothing() -> None:
    turns = [s.turns[0] for s in first(random_prompts(MAKER, LONG, SHORT, 0), 200)]
    tokens = [len(t.text.split()) * 1.25 + 5 for t in turns]
    assert min(tokens) >= 49 and max(tokens) <= 101
    assert statistics.mean(tokens) == pytest.approx(75, abs=3)
    assert {t.max_tokens for t in turns} == {20}
    assert len({t.text[:40] for t in turns}) == 200


def test_prompts_of_a_group_share_exactly_its_prefix() -> None:
    texts = [s.turns[0].text for s in first(shared_prefix(MAKER, 3, 40, LONG, SHORT, 0), 60)]
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(" ".join(text.split()[:32]), []).append(text)  # 40 tokens of 1.25
    assert len(groups) == 3
    for members in groups.values():
        assert shared_words(members[0], members[1]) in (32, 33)


def test_trace_prompts_share_the_blocks_that_their_hash_ids_share(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 600, "output_length": 9, "hash_ids": [7, 8]},
        {"timestamp": 500, "input_length": 1536, "output_length": 9, "hash_ids": [7, 9, 10]},
        {"timestamp": 900, "input_length": 9000, "output_length": 9, "hash_ids": [1]},
    ]
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(json.dumps(line).encode() for line in lines)))
    kept, left_out = read_trace(path, max_input_tokens=2000)
    assert (len(kept), left_out) == (2, 1)
    a, b = (s.turns[0].text for s in traced(TextMaker(), kept, scale=0.5, seed=0))
    assert (len(a.split()), len(b.split())) == (300, 768)
    assert shared_words(a, b) in (256, 257)
    assert list(recorded([line.timestamp for line in kept], speed=2)) == [0, 0.25]


def test_poisson_arrivals_have_their_rate_and_the_spread_of_independent_events() -> None:
    times = list(itertools.islice(poisson(50, seed=1), 20_001))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert list(itertools.islice(constant(4), 3)) == [0, 0.25, 0.5]


def test_goodput_counts_requests_that_kept_every_limit() -> None:
    def record(ttft: float, gap: float, error: str | None = None) -> Record:
        chunks = [ttft, ttft + gap]
        return Record(
            due=0, sent=0, chunks=chunks, ended=2.0, prompt_tokens=10, output_tokens=2, error=error
        )

    records = [
        record(0.1, 0.01),
        record(0.3, 0.01),
        record(0.1, 0.05),
        record(0.1, 0.01, "timeout"),
    ]
    report = summarize(records, Slo(ttft=0.2, tpot=0.02))
    assert (report.goodput_per_s, report.good_share) == (0.5, 0.25)
    assert (report.requests_per_s, report.errors) == (1.5, {"timeout": 1})


def test_percentiles_are_values_that_occurred() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99)] == [50, 90, 99]
    assert percentile([7.0], 0.99) == 7.0
