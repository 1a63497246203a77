"""Progress bars of the runs, on standard error if that is a terminal."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from pando.sim.runs import Shown
from pando.sim.work import Progress
from pando_sim.report.measures import span


@contextmanager
def bars(names: Sequence[str], requests: int | None) -> Iterator[Shown]:
    """A bar for each run: finished requests, the virtual time, and its speed.

    `requests`: how many there will be; None if nothing says so.
    """
    console = Console(stderr=True)
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[virtual]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,  # even a bar that is not drawn would leave a line
    ) as progress:
        tasks = [progress.add_task(name, total=requests, virtual="", start=False) for name in names]

        def show(number: int, current: Progress) -> None:
            task = tasks[number]
            progress.start_task(task)
            elapsed = progress.tasks[number].elapsed
            rate = f", {current.at_s / elapsed:,.0f} times as fast" if elapsed else ""
            virtual = f"at {span(current.at_s)}{rate}"
            progress.update(task, completed=current.ended, virtual=virtual)

        yield show
