"""The bars of the runs, on standard error while it is a terminal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from pando.sim.runs import Shown
from pando.sim.work import Progress
from pando_sim.report.measures import span


@contextmanager
def bars(names: Sequence[str], requests: int) -> Iterator[Shown]:
    """A bar a run: requests that have ended of all, the virtual time, and its rate."""
    console = Console(stderr=True)
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[virtual]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a bar that is not drawn would still leave a line
    ) as progress:
        tasks = [progress.add_task(name, total=requests, virtual="", start=False) for name in names]

        def show(number: int, told: Progress) -> None:
            task = tasks[number]
            progress.start_task(task)
            elapsed = progress.tasks[number].elapsed
            rate = f", {told.at_s / elapsed:,.0f} times as fast" if elapsed else ""
            progress.update(task, completed=told.ended, virtual=f"at {span(told.at_s)}{rate}")

        yield show
