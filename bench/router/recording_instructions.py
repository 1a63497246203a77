"""What recording adds to a router's instructions a request.

Run: python -m bench.router.recording_instructions

One router gets the same bursts in turns with its recording switched on and off, and valgrind, which
has to be installed, counts the instructions of all its threads. Other load matters less than to
`recording_cost`, but a burst that takes longer contains more of what the router does every second.
It does not see what an instruction costs, such as waiting for memory. Needs nginx.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from bench.router.counting import PATIENCE_S, Counter, callgrind
from bench.router.recording_cost import WRITTEN_S, in_turns, switch
from bench.router.routing.bursts import Bursts
from bench.router.routing.load import replicas
from bench.router.routing.routers import pando

WARM_REQUESTS = 1_000


@click.command(help=__doc__)
@click.option("--pairs", default=6, show_default=True, help="bursts with and without recording")
@click.option("--burst", default=1000, show_default=True, help="requests")
def main(pairs: int, burst: int) -> None:
    counts: dict[bool, list[float]] = {False: [], True: []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pando-bench-")))
        upstreams = stack.enter_context(replicas(8, folder))
        record = ("--record", str(folder / "requests.jsonl"))
        under = callgrind(folder)
        router = stack.enter_context(
            pando(upstreams, folder, sys.executable, *record, under=under, within_s=PATIENCE_S)
        )
        counter = Counter(router.processes[0].pid, folder)
        bursts = Bursts(router.port)
        bursts.answer(bursts.requests(WARM_REQUESTS))
        for on in in_turns(pairs):
            switch(router.port, on)
            requests = bursts.requests(burst)
            counter.start()
            bursts.answer(requests)
            time.sleep(WRITTEN_S)
            counts[on].append(counter.instructions() / burst)
    added = [on - off for off, on in zip(counts[False], counts[True], strict=True)]
    without = median(counts[False])
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"without recording: {without:,.0f} instructions a request")
    console.print(
        f"recording adds {median(added):+,.0f} ({min(added):+,.0f} to {max(added):+,.0f}),"
        f" {median(added) / without:.1%}"
    )


if __name__ == "__main__":
    main()
