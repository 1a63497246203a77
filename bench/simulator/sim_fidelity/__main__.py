"""Measures, replays, simulates and compares; exits with 1 if the two sides differ too much."""

import asyncio
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain, combinations
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench.simulator.sim_fidelity.measured import Outcome
from bench.simulator.sim_fidelity.real import WORKERS, Real, measure, replay
from bench.simulator.sim_fidelity.simulated import replay as simulated
from bench.simulator.sim_fidelity.workload import Ask, alone_s, at_rate, make, write
from pando.up.signals import end_signals
from pando_sim.cost import load
from pando_sim.cost.calibration.calibrate import Calibration
from pando_sim.cost.calibration.fitting import fit_model
from pando_sim.cost.files import render
from pando_sim.cost.model import CostModel
from pando_sim.cost.schema import CostFile
from pando_sim.traces import open_trace

POLICIES = ("cache_aware", "round_robin", "least_loaded")
HIT_RATE_POINTS = 0.01
TTFT_SHARE = 0.15
KV_BYTES_PER_TOKEN = 4096  # of the demo model: 4 layers, 2 heads of 64, keys and values, float32


class Measured(msgspec.Struct, frozen=True):
    """The results of the real side, in real.json."""

    date: str
    load: tuple[float, float, float]  # of the machine, at the end
    niceness: int
    capacity_tokens: int
    rate: float  # requests a second
    drift: float  # median ratio of the measurements at the end and at the beginning
    rounds: dict[str, list[Outcome]]  # by policy; one per trace


class Side(msgspec.Struct, frozen=True):
    """The results of one side, over all rounds."""

    rounds: list[Outcome]

    @property
    def hit_rate(self) -> float:
        return statistics.fmean(outcome.hit_rate for outcome in self.rounds)

    @property
    def ttft_p50_s(self) -> float:
        return statistics.median(outcome.ttft_p50_s for outcome in self.rounds)

    @property
    def ttft_mean_s(self) -> float:
        return statistics.fmean(outcome.ttft_mean_s for outcome in self.rounds)


class Compared(msgspec.Struct, frozen=True):
    policy: str
    real: Side
    simulated: Side

    @property
    def hit_rate_off(self) -> float:
        return self.simulated.hit_rate - self.real.hit_rate

    @property
    def ttft_off(self) -> float:
        return self.simulated.ttft_p50_s / self.real.ttft_p50_s - 1


class Result(msgspec.Struct, frozen=True):
    machine: str
    requests: int
    measured: Measured
    compared: list[Compared]
    same_order: bool  # of policies that the real fleet distinguishes, by TTFT p50


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--requests", type=click.IntRange(2), default=240, show_default=True)
@click.option("--groups", type=click.IntRange(1), default=12, show_default=True)
@click.option(
    "--utilization",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.25,
    show_default=True,
    help="utilization of the workers if nothing were cached and no step shared",
)
@click.option("--capacity-tokens", type=click.IntRange(2048), default=6144, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=8, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--simulate-only", is_flag=True, help="use the results of a real fleet in OUTPUT")
def main(
    output: Path,
    requests: int,
    groups: int,
    utilization: float,
    capacity_tokens: int,
    rounds: int,
    seed: int,
    simulate_only: bool,
) -> None:
    """Compares the simulator with a real fleet of two workers on this machine.

    Files in OUTPUT: a trace per round, the cost model, real.json, result.json and the fleet's log.
    """
    output.mkdir(parents=True, exist_ok=True)
    if not simulate_only:
        drawn = [make(requests, groups, seed + number) for number in range(rounds)]
        with end_signals() as signals:
            real = Real(capacity_tokens, signals, output / "fleet.log")
            measured, file = asyncio.run(_measure(real, drawn, utilization, output))
        (output / "cost_model.json").write_bytes(render(file))
        _write(measured, output / "real.json")
    result = asyncio.run(_compare(output))
    _write(result, output / "result.json")
    _show(result)
    sys.exit(0 if all(map(_is_close, result.compared)) and result.same_order else 1)


def _trace(output: Path, number: int) -> Path:
    return output / f"trace-{number}.jsonl"


def _write(content: msgspec.Struct, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


async def _measure(
    real: Real, drawn: list[list[Ask]], utilization: float, output: Path
) -> tuple[Measured, CostFile]:
    """The machine's speed may change, so the workers are measured around each round."""
    calibrations = [await _calibrated(real, 0)]
    rate = _rate(drawn, utilization, CostModel(_cost_file(calibrations)))
    answers: dict[str, list[Outcome]] = {policy: [] for policy in POLICIES}
    for number, asks in enumerate(at_rate(asks, rate) for asks in drawn):
        write(asks, _trace(output, number))
        for policy in POLICIES:
            replies = await real.run(policy, partial(replay, asks=asks))
            answers[policy].append(Outcome.of(replies))
            click.echo(f"real {policy}: {answers[policy][-1]}", err=True)
        calibrations.append(await _calibrated(real, number + 1))
    measured = Measured(
        date=datetime.now(UTC).date().isoformat(),
        load=os.getloadavg(),
        niceness=os.nice(0),
        capacity_tokens=real.capacity_tokens,
        rate=rate,
        drift=_drift(calibrations[0], calibrations[-1]),
        rounds=answers,
    )
    return measured, _cost_file(calibrations)


async def _calibrated(real: Real, number: int) -> list[Calibration]:
    return await real.run("session", partial(measure, seed=number))


def _rate(drawn: list[list[Ask]], utilization: float, cost: CostModel) -> float:
    """Requests a second that demand as much of a slow machine as of a fast one. Other processes on
    the workers' cores disturb them more, the busier the workers are."""
    return utilization * WORKERS / alone_s(list(chain(*drawn)), cost)


async def _compare(output: Path) -> Result:
    measured = msgspec.json.decode((output / "real.json").read_bytes(), type=Measured)
    cost = load(str(output / "cost_model.json"))
    compared = []
    for policy, rounds in measured.rounds.items():
        outcomes = []
        for number in range(len(rounds)):
            trace = _trace(output, number)
            outcomes.append(await simulated(trace, policy, cost, WORKERS))
        compared.append(Compared(policy, Side(rounds), Side(outcomes)))
    return Result(
        machine=cost.file.machine,
        requests=sum(1 for _ in open_trace(_trace(output, 0))),
        measured=measured,
        compared=compared,
        same_order=_same_order(compared),
    )


def _cost_file(calibrations: Sequence[Sequence[Calibration]]) -> CostFile:
    every = list(chain(*calibrations))
    fitted = fit_model([seen for one in every for seen in one.observations])
    worker = every[0].worker
    return CostFile(
        name="cpu-pando-tiny",
        model=worker.model,
        machine=f"{worker.machine}, Python {platform.python_version()}",
        source="python -m bench.simulator.sim_fidelity:"
        " both workers through their router, around each round",
        date=worker.date,
        step=fitted.step,
        request=fitted.request,
        worker=worker.facts(),
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        quality=fitted.quality,
    )


def _drift(before: list[Calibration], after: list[Calibration]) -> float:
    ratios = []
    for first, second in zip(before, after, strict=True):
        seconds = {one.what: one.seconds for one in first.observations}
        ratios += [
            one.seconds / seconds[one.what] for one in second.observations if one.what in seconds
        ]
    return statistics.median(ratios) - 1


def _same_order(compared: Sequence[Compared]) -> bool:
    """Whether each pair of policies whose times differ by more than the tolerance in the real fleet
    has the same order in the simulated one."""
    for one, other in combinations(compared, 2):
        low, high = sorted((one, other), key=lambda each: each.real.ttft_p50_s)
        apart = high.real.ttft_p50_s / low.real.ttft_p50_s - 1
        if apart > TTFT_SHARE and low.simulated.ttft_p50_s >= high.simulated.ttft_p50_s:
            return False
    return True


def _is_close(one: Compared) -> bool:
    return abs(one.hit_rate_off) <= HIT_RATE_POINTS and abs(one.ttft_off) <= TTFT_SHARE


def _show(result: Result) -> None:
    rounds = len(result.compared[0].real.rounds)
    table = Table(
        title=f"{rounds} times {result.requests} requests, {WORKERS} workers on {result.machine}"
    )
    table.add_column("policy")
    for column in ("hit rate", "simulated", "off", "TTFT p50 ms", "simulated", "off", "TTFT mean"):
        table.add_column(column, justify="right")
    table.add_column("simulated", justify="right")
    table.add_column("")
    for one in result.compared:
        table.add_row(
            one.policy,
            f"{one.real.hit_rate:.1%}",
            f"{one.simulated.hit_rate:.1%}",
            f"{100 * one.hit_rate_off:+.1f} points",
            f"{1000 * one.real.ttft_p50_s:.0f}",
            f"{1000 * one.simulated.ttft_p50_s:.0f}",
            f"{one.ttft_off:+.0%}",
            f"{1000 * one.real.ttft_mean_s:.0f}",
            f"{1000 * one.simulated.ttft_mean_s:.0f}",
            "close" if _is_close(one) else "off",
        )
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(table)
    measured = result.measured
    console.print(
        f"order of policies {TTFT_SHARE:.0%} apart by TTFT p50:"
        f" {'the same' if result.same_order else 'another'};"
        f" {measured.rate:.1f} requests a second; measurements drifted by"
        f" {measured.drift:+.0%}; load {measured.load[0]:.1f}, niceness {measured.niceness}"
    )
    if abs(measured.drift) > TTFT_SHARE:
        console.print(
            "The machine's own speed changed by more than a time may be off, so this run says"
            " little: run it again where nothing else runs."
        )


if __name__ == "__main__":
    main()
