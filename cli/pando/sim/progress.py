"""Progress of the runs on standard error: bars if that is a terminal, else one line that says how
long they will take."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from pando.sim.pace import Pace
from pando.sim.runs import Shown
from pando.sim.work import Progress
from pando_sim.report.measures import span


@contextmanager
def bars(names: Sequence[str], requests: int | None, length_s: float) -> Iterator[Shown]:
    """A bar for each run: finished requests, the virtual time, and its speed.

    Args:
        requests: how many there will be; None if nothing says so.
        length_s: virtual, of each run.
    """
    console = Console(stderr=True)
    pace = Pace(len(names), length_s, monotonic())
    runs = "1 run" if len(names) == 1 else f"{len(names)} runs"
    is_told = False
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
        all_runs = progress.add_task(runs, total=None, virtual="")
        tasks = [progress.add_task(name, total=requests, virtual="", start=False) for name in names]

        def show(number: int, current: Progress) -> None:
            nonlocal is_told
            task = tasks[number]
            progress.start_task(task)
            elapsed = progress.tasks[number].elapsed
            rate = f", {current.at_s / elapsed:,.0f} times as fast" if elapsed else ""
            virtual = f"at {span(current.at_s)}{rate}"
            progress.update(task, completed=current.ended, virtual=virtual)
            pace.played(number, current.at_s)
            if (left_s := pace.left_s(monotonic())) is None:
                return
            left = f"about {span(left_s)} left"
            progress.update(all_runs, virtual=left)
            if not is_told and not console.is_terminal:
                console.print(f"{runs}: {left}", highlight=False)
            is_told = True

        yield show
