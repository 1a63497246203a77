"""`pando sim prove`: a run written as a recording is what its replay shows, and no other one."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from pando.main import main
from pando.sim import work
from pando.sim.plan import make_plan
from pando_router.recording.form import FleetState, Header, Outcome, PoolState, Record
from pando_sim.settings import SimSettings

Capture = pytest.CaptureFixture[str]

BEGAN = 1_790_000_000.0  # Unix time
COST, SLOWER = "h100-llama-3.1-8b-fp8", "h200-llama-3.3-70b-fp8"
ROOT = Path(__file__).parents[3]


def write(path: Path, lines: list[Header | Record | FleetState]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def draft() -> list[Header | Record | FleetState]:
    """Conversations that share a beginning, with any times of answers, on two replicas."""
    rng, lines = random.Random(4), list[Header | Record | FleetState]([Header(started=BEGAN)])
    pool = PoolState(model="m", policy="least_loaded", replicas=2, ready=2)
    at, told = BEGAN, {number: rng.randbytes(6 * 40) for number in range(12)}
    for number in range(160):
        if number % 20 == 0:
            lines.append(FleetState(fleet_at=at, router="r", pools={"chat": pool}))
        who = rng.randrange(len(told))
        told[who] += rng.randbytes(6 * 2)
        size = 256 * (len(told[who]) // 6) + 100
        lines.append(
            Record(
                at=at,
                oldest=at,
                model="m",
                pool="chat",
                keys=told[who],
                prompt_bytes=size,
                prompt_tokens=size // 4,
                expected_tokens=64,
                output_tokens=rng.randint(5, 60),
                outcome=Outcome.FINISHED,
                status=200,
                first_s=0.01,
                total_s=0.02,
                cached_tokens=0,
                stream=True,
            )
        )
        at += rng.expovariate(8.0)
    return lines


def as_served(path: Path, lines: list[Header | Record | FleetState]) -> None:
    """Makes the times and hits of the recording those of a run."""
    write(path, lines)
    settings = SimSettings(
        trace=(str(path),), policy=("least_loaded",), replicas=2, cost_model=COST, closed_loop=False
    )
    (task,) = make_plan(settings).tasks
    served = iter(sorted(asyncio.run(work.run(task)).served, key=lambda one: one.arrival_s))
    for line in lines:
        if isinstance(line, Record):
            one = next(served)
            line.first_s, line.total_s = one.ttft_s, one.end_s - one.arrival_s
            line.cached_tokens = one.cached_tokens
    write(path, lines)


def prove(capsys: Capture, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["sim", "prove", *words, "--no-closed-loop"])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, said.out, said.err


@pytest.mark.long
def test_a_recording_is_compared_with_its_replay(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "trace.jsonl"
    as_served(path, draft())
    manifest = tmp_path / "pool.yaml"
    manifest.write_text(
        "apiVersion: pando.dev/v1alpha1\nkind: WorkerPool\nmetadata: {name: chat}\n"
        "spec: {model: m, replicas: 5}\n"
    )
    same = (str(path), "--pool", str(manifest), "--cost-model", COST)
    code, out, _ = prove(capsys, *same)
    assert code == 0, out
    rows = {line[:20].strip(): line for line in out.splitlines()}
    assert rows["replicas"].split()[1:] == ["2.00", "2.00", "0.25", "predicted"]
    assert float(rows["hit rate"].split()[2].rstrip("%")) > 30
    code, out, _ = prove(capsys, *same[:-1], SLOWER)
    assert code == 1
    assert "TTFT, median is not predicted: recorded " in out
    code, _, error = prove(capsys, *same, "--speed", "2")
    assert code == 2 and "--speed changes what is played" in error
    trace = str(ROOT / "examples" / "traces" / "small.jsonl")
    code, _, error = prove(capsys, trace, *same[1:])
    assert code == 2 and "is no recording of a router" in error
    path.write_bytes(path.read_bytes().replace(b'"least_loaded"', b'"astrology"'))
    code, _, error = prove(capsys, *same)
    assert code == 2 and "policy is 'astrology', which this release lacks" in error
