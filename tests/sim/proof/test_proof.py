"""A simulated run that is written as a recording is proven by itself, and by no other one."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pando_router.recording.form import FleetState, Header, PoolState, Record
from pando_router.recording.form import Outcome as Recorded
from pando_sim.proof import Proof, prove, recorded, replayed
from pando_sim.records import Outcome, Run
from pando_sim.traces import TraceError
from tests.sim.fleet.world import SPEC, conversations, run, with_worker

BEGAN = 1_790_000_000.0  # Unix time
CROWD = conversations(25, 5, 0.11)


@pytest.fixture(scope="module")
def real() -> Run:
    return run(CROWD)


def as_recording(run: Run, path: Path) -> Path:
    """What a router would have written of the run."""
    lines: list[Header | Record | FleetState] = [Header(started=BEGAN)]
    for one in run.served:
        answered = one.outcome is Outcome.FINISHED
        lines.append(
            Record(
                at=BEGAN + one.arrival_s,
                oldest=BEGAN,
                pool="default",
                model="m",
                prompt_bytes=4 * one.prompt_tokens,
                prompt_tokens=one.prompt_tokens,
                expected_tokens=one.output_tokens,
                output_tokens=one.output_tokens,
                outcome=Recorded.FINISHED if answered else Recorded.REFUSED,
                status=200 if answered else 503,
                first_s=one.ttft_s if answered else None,
                total_s=one.end_s - one.arrival_s,
                cached_tokens=one.cached_tokens,
                stream=True,
            )
        )
    for sample in run.samples:
        pool = PoolState(model="m", policy="cache_aware", replicas=sample.replicas)
        lines.append(FleetState(fleet_at=BEGAN + sample.at_s, router="r", pools={"default": pool}))
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


def proof_of(tmp_path: Path, real: Run, simulated: Run) -> Proof:
    before = recorded([as_recording(real, tmp_path / "recording.jsonl")]).measures
    return prove(before, replayed(simulated, skip_s=before.skip_s))


def test_a_run_is_proven_by_itself(tmp_path: Path, real: Run) -> None:
    proof = proof_of(tmp_path, real, real)
    assert proof.holds, proof.failures
    for row in proof.rows:
        assert row.recorded is not None
        assert row.replayed == pytest.approx(row.recorded, abs=1e-5), row.name
    after = [one for one in real.served if one.arrival_s >= proof.recorded.skip_s]
    assert proof.recorded.requests == len(after) < len(real.served)
    ttfts = sorted(one.ttft_s for one in after)
    assert proof.recorded.ttft_p50 == pytest.approx(np.median(ttfts), abs=1e-5)


def test_a_slower_replay_says_what_it_does_not_predict(tmp_path: Path, real: Run) -> None:
    slower = run(CROWD, replace(SPEC, replicas=1))
    failures = "\n".join(proof_of(tmp_path, real, slower).failures)
    assert f"replicas is not predicted: recorded {SPEC.replicas}.00, replayed 1.00" in failures
    assert "TTFT, p99 is not predicted" in failures


def test_a_smaller_cache_is_noticed_by_its_hit_rate(tmp_path: Path, real: Run) -> None:
    small = run(CROWD, with_worker(capacity_tokens=2048))
    assert any("hit rate is not" in why for why in proof_of(tmp_path, real, small).failures)


def test_what_was_not_recorded_is_not_taken_for_proven(tmp_path: Path, real: Run) -> None:
    path = as_recording(real, tmp_path / "recording.jsonl")
    kept = [line for line in path.read_bytes().splitlines(True) if b"fleet_at" not in line]
    path.write_bytes(b"".join(kept).replace(b'"stream":true', b'"stream":false'))
    before = recorded([path]).measures
    failures = prove(before, replayed(real, skip_s=before.skip_s)).failures
    for name in ("replicas", "TTFT, median", "gap, p99"):
        assert f"{name} cannot be proven: the recording does not have it" in failures


def test_too_few_requests_prove_nothing(tmp_path: Path) -> None:
    real = run(CROWD[:30])
    (why,) = proof_of(tmp_path, real, real).failures
    assert "at least 100 are needed" in why


def test_a_recording_without_the_model_is_refused(tmp_path: Path) -> None:
    path = as_recording(run(CROWD[:5]), tmp_path / "recording.jsonl")
    with pytest.raises(TraceError, match="has no request for 'other'"):
        recorded([path], "other")
    other = tmp_path / "trace.jsonl"
    other.write_text('{"timestamp": 0, "input_length": 5, "output_length": 2, "hash_ids": [1]}\n')
    with pytest.raises(TraceError, match="is no recording"):
        recorded([other])
