"""What recording adds to a router's CPU time a request.

Run: python -m bench.router.recording_cost

One router gets the same bursts in turns with its recording switched on and off. So nothing else
differs: two routers of one version may differ by more than this adds. The time counts all threads,
so also the one that writes, and each burst is followed by the time until its lines are written.
Needs nginx.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from urllib.request import Request, urlopen

import click
from rich.console import Console

from bench.router.router_versions import Version
from bench.router.routing.load import replicas
from pando_router.recording.recorder import EVERY_S

HERE = Path(__file__).parents[2]
WRITTEN_S = EVERY_S + 0.1  # until the lines of a burst are written


@click.command(help=__doc__)
@click.option("--pairs", default=60, show_default=True, help="bursts with and without recording")
@click.option("--burst", default=1200, show_default=True, help="requests")
def main(pairs: int, burst: int) -> None:
    costs: dict[bool, list[float]] = {False: [], True: []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pando-bench-")))
        upstreams = stack.enter_context(replicas(8, folder))
        record = ("--record", str(folder / "requests.jsonl"))
        router = stack.enter_context(Version(HERE, upstreams, burst, *record))
        for on in in_turns(pairs):
            switch(router.port, on)
            costs[on].append(router.cost(rest_s=WRITTEN_S).router)
        lines = sum(path.read_bytes().count(b"\n") for path in folder.glob("requests.jsonl*"))
        written = sum(path.stat().st_size for path in folder.glob("requests.jsonl*"))
    added = [on - off for off, on in zip(costs[False], costs[True], strict=True)]
    low, middle, high = quantiles(added, n=4)
    without = median(costs[False])
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"without recording: {without:.1f} CPU µs a request")
    console.print(
        f"recording adds {middle:+.2f} ({low:+.2f} to {high:+.2f}), {middle / without:.1%};"
        f" {lines:,} lines of {written / lines:.0f} bytes were written"
    )


def in_turns(pairs: int) -> Iterator[bool]:
    """Off and on; every second time in the other order."""
    for pair in range(pairs):
        first = bool(pair % 2)
        yield from (first, not first)


def switch(port: int, on: bool) -> None:
    url = f"http://127.0.0.1:{port}/recording"
    body = b'{"on": true}' if on else b'{"on": false}'
    with urlopen(Request(url, data=body, method="PATCH"), timeout=10):
        pass


if __name__ == "__main__":
    main()
