"""What the bound on sessions adds to a request's CPU time in router and Valkey: one router has it,
one does not.

Run: python -m bench.router.bound_cost

Both run this checkout, in front of the same replicas, and get the same bursts in turns, as in
`router_versions.py`. Each request is a session of its own that never returns, the case in which the
bound does most and is worth nothing; none of them waits. Needs nginx.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from bench.router.router_versions import Cost, Version, against, in_turns
from bench.router.routing.load import replicas

HERE = Path(__file__).parents[2]
SYSTEM_BYTES = 6_000  # prompts of less than 2 KiB are no sessions


@click.command(help=__doc__)
@click.option("--pairs", default=60, show_default=True, help="bursts for each router")
@click.option("--burst", default=600, show_default=True, help="requests")
def main(pairs: int, burst: int) -> None:
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pando-bench-")))
        upstreams = stack.enter_context(replicas(8, folder))
        routers = [
            stack.enter_context(Version(HERE, upstreams, burst, option, system_bytes=SYSTEM_BYTES))
            for option in ("--no-bound-sessions", "--bound-sessions")
        ]
        for place, router in in_turns(routers, pairs):
            costs[place].append(router.cost())
    console = Console(soft_wrap=True, highlight=False)
    console.print("| bound | router µs | against off | Valkey µs | against off |")
    console.print("|---|---|---|---|---|")
    for name, found in zip(("off", "on"), costs, strict=True):
        of_router = against([one.router for one in costs[0]], [one.router for one in found])
        of_valkey = against([one.valkey for one in costs[0]], [one.valkey for one in found])
        console.print(f"| {name} | {of_router} | {of_valkey} |", markup=False)
    share = median(
        (b.router + b.valkey) / (a.router + a.valkey) - 1 for a, b in zip(*costs, strict=True)
    )
    console.print(f"the bound adds {share:.1%}")


if __name__ == "__main__":
    main()
