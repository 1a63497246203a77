"""The router's CPU time a request in several checkouts, one beside the other.

Run: python -m bench.router.router_versions BEFORE AFTER, two or more folders with a checkout each,
such as `git worktree add ../before COMMIT` makes. All run by this Python, in front of the same
replicas. Each router gets the same burst of requests in turns, far shorter than the machine keeps
its speed, so the differences of the pairs tell even on a busy machine. Needs nginx.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import click
from rich.console import Console

from bench.router.routing.bursts import Bursts
from bench.router.routing.load import SYSTEM_BYTES, replicas

PARTS = ("fleet", "router", "worker", "operator", "sim", "cli", ".")
WARM_REQUESTS = 3_000
ANSWERED_S = 0.01  # until the writes behind the last answers are with Valkey

# Run with the checkout's own modules. Ends with its standard input.
_SIDE = """
import sys, tempfile
from pathlib import Path
from bench.router.routing.routers import pando
with tempfile.TemporaryDirectory() as name:
    with pando(sys.argv[1].split(","), Path(name), sys.executable, *sys.argv[2:]) as router:
        print(router.port, *(process.pid for process in router.processes), flush=True)
        sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds of one request."""

    router: float
    valkey: float


class Version:
    """A checkout's router with its Valkey; leave the `with` block to end both."""

    def __init__(
        self,
        checkout: Path,
        upstreams: Sequence[str],
        burst: int,
        *options: str,
        system_bytes: int = SYSTEM_BYTES,
    ) -> None:
        """`options` are the router's; `system_bytes` of each request are a system prompt."""
        paths = os.pathsep.join(str(checkout / part) for part in PARTS)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SIDE, ",".join(upstreams), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            cwd=checkout,
            text=True,
        )
        assert self._process.stdout is not None
        self.port, self._router, self._valkey = map(int, self._process.stdout.readline().split())
        self._bursts = Bursts(self.port, system_bytes)
        self._burst = burst
        self._bursts.answer(self._bursts.requests(WARM_REQUESTS))

    def __enter__(self) -> "Version":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def cost(self, rest_s: float = ANSWERED_S) -> Cost:
        """Of a burst; what the router still does in `rest_s` behind it counts, too."""
        requests = self._bursts.requests(self._burst)
        router_ns, valkey_ns = _cpu_ns(self._router), _cpu_ns(self._valkey)
        self._bursts.answer(requests)
        time.sleep(rest_s)
        return Cost(
            (_cpu_ns(self._router) - router_ns) / self._burst / 1e3,
            (_cpu_ns(self._valkey) - valkey_ns) / self._burst / 1e3,
        )


def _cpu_ns(pid: int) -> int:
    """Of all threads; `psutil` counts in hundredths of a second."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def in_turns(versions: Sequence[Version], pairs: int) -> Iterator[tuple[int, Version]]:
    """Each of them `pairs` times, with its place; every second time in the other order."""
    for pair in range(pairs):
        turn = list(enumerate(versions))
        yield from reversed(turn) if pair % 2 else turn


def against(first: Sequence[float], other: Sequence[float]) -> str:
    """The median of a version's numbers, and how they differ from the first one's of the pair."""
    differences = [b - a for a, b in zip(first, other, strict=True)]
    low, middle, high = quantiles(differences, n=4)
    return f"{median(other):.1f} | {middle:+.1f} ({low:+.1f} to {high:+.1f})"


@click.command(help=__doc__)
@click.argument("checkouts", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--pairs", default=100, show_default=True, help="bursts for each router")
@click.option("--burst", default=600, show_default=True, help="requests")
def main(checkouts: tuple[Path, ...], pairs: int, burst: int) -> None:
    costs: list[list[Cost]] = [[] for _ in checkouts]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pando-bench-")))
        upstreams = stack.enter_context(replicas(8, folder))
        versions = [
            stack.enter_context(Version(one.resolve(), upstreams, burst)) for one in checkouts
        ]
        for place, version in in_turns(versions, pairs):
            costs[place].append(version.cost())
    console = Console(soft_wrap=True, highlight=False)
    console.print("| checkout | router µs | against the first | Valkey µs | against the first |")
    console.print("|---|---|---|---|---|")
    first = costs[0]
    for checkout, found in zip(checkouts, costs, strict=True):
        router = against([one.router for one in first], [one.router for one in found])
        valkey = against([one.valkey for one in first], [one.valkey for one in found])
        console.print(f"| {checkout.name} | {router} | {valkey} |", markup=False)


if __name__ == "__main__":
    main()
