"""What recording adds to the router's CPU time a request: one router records, one does not.

Run: python -m bench.router.recording_cost

Both run this checkout, in front of the same replicas, and get the same bursts in turns, as in
`router_versions.py`. The time counts all threads, so also the one that hides keys and writes. Needs
nginx.
"""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from bench.router.router_versions import Version, against, in_turns
from bench.router.routing.load import replicas

HERE = Path(__file__).parents[2]
WRITTEN_S = 0.3  # until the lines of a burst are written


@click.command(help=__doc__)
@click.option("--pairs", default=60, show_default=True, help="bursts for each router")
@click.option("--burst", default=600, show_default=True, help="requests")
def main(pairs: int, burst: int) -> None:
    costs: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pando-bench-")))
        upstreams = stack.enter_context(replicas(8, folder))
        record = ("--record", str(folder / "requests.jsonl"))
        routers = [
            stack.enter_context(Version(HERE, upstreams, burst, *options))
            for options in ((), record)
        ]
        for place, router in in_turns(routers, pairs):
            costs[place].append(router.cost(rest_s=WRITTEN_S).router)
            time.sleep(WRITTEN_S)
        written = sum(path.stat().st_size for path in folder.glob("requests.jsonl*"))
    console = Console(soft_wrap=True, highlight=False)
    console.print("| | router µs | against the first |")
    console.print("|---|---|---|")
    for name, found in zip(("off", "on"), costs, strict=True):
        console.print(f"| recording {name} | {against(costs[0], found)} |", markup=False)
    share = median(b / a - 1 for a, b in zip(*costs, strict=True))
    console.print(f"recording adds {share:.1%}; {written:,} bytes were written")


if __name__ == "__main__":
    main()
