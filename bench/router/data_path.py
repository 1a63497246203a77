"""The router's data path beside its peers': CPU time per request, latency, streams, in one run.

Run: python -m bench.router.data_path --peers DIR, where DIR contains the programs `smg`,
`sglang-router` and `vllm-router` (`python -m venv v; v/bin/pip install smg sglang-router
vllm-router`, DIR is v/bin); missing ones are skipped and listed. Needs wrk, nginx and a C compiler.
Replicas answer at once, so the routers' own cost is measured. Rounds alternate between the routers,
so that a slow minute of the machine affects all of them; the table shows medians.
"""

import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
import psutil
from rich.console import Console

from bench.router.routing import load
from bench.router.routing.load import Streams, Whole
from bench.router.routing.processes import memory_mib
from bench.router.routing.routers import Running, Start, bare, nginx, pando, peer

REPLICAS = 8
STREAMS = 200
EVENTS_PER_S = 50
EVENTS = 200  # of one stream


def contestants(
    peers: Path | None, python: str, options: Sequence[str]
) -> tuple[dict[str, Start], list[str]]:
    """The routers to start, by name, and the names of those whose program is missing."""
    options_of = {
        "smg": ("launch", "--log-level", "warn"),
        "sglang-router": ("launch", "--log-level", "warn"),
        "vllm-router": ("--log-level", "warning"),
    }
    found: dict[str, Start] = {
        "pando": lambda upstreams, folder: pando(upstreams, folder, python, *options),
        "bare": bare(python, asks_redis=False),
        "bare+redis": bare(python, asks_redis=True),
        "nginx": nginx,
    }
    missing = []
    for name, command in options_of.items():
        program = peers / name if peers else None
        if program and program.exists():
            found[name] = peer(name, program, *command)
        else:
            missing.append(name)
    return found, missing


def whole_round(
    starts: dict[str, Start], seconds: float, folder: Path, found: dict[str, list[list[Whole]]]
) -> None:
    """Each router once, at 32 connections and at one; and the replicas themselves as `direct`."""
    with load.replicas(REPLICAS, folder) as upstreams:
        direct = Running("direct", int(upstreams[0].rpartition(":")[2]), [])
        found["direct"].append(_whole(direct, seconds, folder))
        for name, start in starts.items():
            with start(upstreams, folder) as router:
                load.whole_answers(router, 32, 1, folder)  # opens connections, fills trees
                found[name].append(_whole(router, seconds, folder))


def _whole(router: Running, seconds: float, folder: Path) -> list[Whole]:
    return [load.whole_answers(router, connections, seconds, folder) for connections in (32, 1)]


def stream_round(
    starts: dict[str, Start], seconds: float, folder: Path, found: dict[str, list[Streams]]
) -> None:
    """Each router once with STREAMS streams of EVENTS_PER_S events a second."""
    program = load.compiled(folder)
    with load.streaming_replicas(program, REPLICAS, EVENTS_PER_S, EVENTS, folder) as upstreams:
        for name, start in starts.items():
            with start(upstreams, folder) as router:
                found[name].append(load.streams(program, router, STREAMS, seconds, folder))


def show_whole(console: Console, found: dict[str, list[list[Whole]]]) -> None:
    """A row per router. `added` is its median latency at one connection minus the replica's."""
    direct_us = median([round_[1].p50_us for round_ in found["direct"]])
    console.print(
        "| router | requests/s | CPU µs a request | p50 ms | p99 ms | alone: p50 µs |"
        " alone: added µs | failures |",
        markup=False,
    )
    console.print("|---|---|---|---|---|---|---|---|")
    for name, rounds in found.items():
        many, one = [pair[0] for pair in rounds], [pair[1] for pair in rounds]
        alone_us = median([whole.p50_us for whole in one])
        console.print(
            f"| {name} | {median([w.requests_per_s for w in many]):,.0f}"
            f" | {median([w.cpu_us for w in many]):.0f}"
            f" | {median([w.p50_us for w in many]) / 1e3:.2f}"
            f" | {median([w.p99_us for w in many]) / 1e3:.2f}"
            f" | {alone_us:.0f} | {alone_us - direct_us:.0f}"
            f" | {sum(w.failures for w in many + one)} |",
            markup=False,
        )


def show_streams(console: Console, found: dict[str, list[Streams]]) -> None:
    console.print(
        "| router | events/s | CPU µs an event | delay p50 µs | delay p99 µs | failures |"
    )
    console.print("|---|---|---|---|---|---|")
    for name, rounds in found.items():
        console.print(
            f"| {name} | {median([s.events_per_s for s in rounds]):,.0f}"
            f" | {median([s.cpu_us for s in rounds]):.1f}"
            f" | {median([s.p50_us for s in rounds]):.0f}"
            f" | {median([s.p99_us for s in rounds]):.0f}"
            f" | {sum(s.failures for s in rounds)} |",
            markup=False,
        )


def show_memory(console: Console, start: Start, requests: int, folder: Path) -> None:
    """The router's memory after each tenth of the requests."""
    with load.replicas(REPLICAS, folder) as upstreams, start(upstreams, folder) as router:
        done = 0.0
        load.whole_answers(router, 32, 5, folder)
        console.print(f"0 requests: {memory_mib(router.processes[:1]):.1f} MiB")
        while done < requests:
            whole = load.whole_answers(router, 32, 20, folder)
            done += whole.requests_per_s * 20
            console.print(f"{done:,.0f} requests: {memory_mib(router.processes[:1]):.1f} MiB")


def version_of(python: str) -> str:
    asked = "import sys; print(sys.version, sys.executable)"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    return found.stdout.strip()


@click.command(help=__doc__)
@click.option("--peers", type=click.Path(exists=True, path_type=Path), help="folder of programs")
@click.option("--only", multiple=True, help="measure only this router; may be repeated")
@click.option("--seconds", default=8.0, show_default=True, help="duration of each measurement")
@click.option("--rounds", default=3, show_default=True)
@click.option("--python", default=sys.executable, show_default=True, help="runs Pando")
@click.option(
    "--memory-requests", default=0, help="instead measure Pando's memory over this many requests"
)
@click.option("--option", "options", multiple=True, help="for `pando router`; may be repeated")
def main(
    peers: Path | None,
    only: tuple[str, ...],
    seconds: float,
    rounds: int,
    python: str,
    memory_requests: int,
    options: tuple[str, ...],
) -> None:
    console = Console(soft_wrap=True, highlight=False)
    starts, missing = contestants(peers, python, options)
    if only:
        starts = {name: start for name, start in starts.items() if name in only}
    with tempfile.TemporaryDirectory(prefix="pando-bench-") as name:
        folder = Path(name)
        if memory_requests:
            show_memory(console, starts["pando"], memory_requests, folder)
            return
        whole: dict[str, list[list[Whole]]] = defaultdict(list)
        streams: dict[str, list[Streams]] = defaultdict(list)
        for number in range(rounds):
            console.print(f"round {number + 1} of {rounds}", style="dim")
            whole_round(starts, seconds, folder, whole)
            stream_round(starts, seconds, folder, streams)
    show_whole(console, whole)
    console.print()
    show_streams(console, streams)
    console.print(
        f"\n{platform.platform()}, Python {version_of(python)}, "
        f"{psutil.cpu_count()} CPUs, load {psutil.getloadavg()[0]:.1f}"
    )
    if missing and not only:
        console.print(f"not measured, no program in --peers: {', '.join(missing)}")


if __name__ == "__main__":
    main()
