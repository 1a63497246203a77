"""The command `pando record`: from running routers to one trace."""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from pando.record.routers import Fetched, RecordingState, RouterError, RouterRecording
from pando.redact import redact

if TYPE_CHECKING:
    from pando_sim.traces.merging import Merged

_HELP = """Fetch the recordings of all routers of a fleet, as one trace for pando sim.

URL is a router's, such as http://127.0.0.1:8000; give one for each router that has a disk of its
own. With --on or --off it switches the recording of all routers that share a Redis instead. An
admin's API key is read from OPENAI_API_KEY."""


@click.command("record", help=_HELP)
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("trace.jsonl"),
    show_default=True,
    help="file for the trace",
)
@click.option("--on/--off", "on", default=None, help="switch the recording, and fetch nothing")
@click.option("--status", is_flag=True, help="show what each router records, and fetch nothing")
def command(urls: tuple[str, ...], output: Path, on: bool | None, status: bool) -> None:
    for url in urls:
        if not re.match(r"https?://[^/]", url):
            raise click.UsageError(
                f"URL is {redact(url)!r}: it must be a router's, such as http://127.0.0.1:8000"
            )
    if on is not None and status:
        raise click.UsageError("--status shows, --on and --off switch: leave out one of them")
    api_key = os.environ.get("OPENAI_API_KEY")  # an option would show it in `ps`
    try:
        if on is not None or status:
            asyncio.run(_switch(urls, on, api_key))
        else:
            _fetch_and_merge(urls, output, api_key)
    except RouterError as error:
        raise click.ClickException(f"record: {redact(str(error))}") from None
    except OSError as error:
        what = error.filename or output
        raise click.ClickException(f"record: cannot write {what}: {error.strerror}") from None


async def _switch(urls: Sequence[str], on: bool | None, key: str | None) -> None:
    for url in dict.fromkeys(urls):
        async with RouterRecording(url, key) as router:
            state = await router.state() if on is None else await router.switch(on)
            click.echo(f"{router.name}: {_in_words(state)}")


def _in_words(state: RecordingState) -> str:
    size = sum(file.size for file in state.files)
    whose = "" if state.changed is None else ", as it was switched for all routers"
    files = f"{len(state.files)} files, {size / 2**20:,.1f} MiB"
    return f"recording is {'on' if state.on else 'off'}{whose}; {files}"


def _fetch_and_merge(urls: Sequence[str], output: Path, key: str | None) -> None:
    from pando.record.summary import summary

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    # Beside the output, since a system's own temporary folder may be small.
    with (
        TemporaryDirectory(prefix=".pando-record-", dir=output.parent) as name,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        folder = Path(name)

        def show(what: str, total: int | None) -> Callable[[int], None]:
            task = bar.add_task(what, total=total)
            return lambda more: bar.advance(task, more)

        fetched = asyncio.run(_fetch(urls, key, folder, show))
        whole = folder / "merged"
        bar.add_task("merging", total=None)
        merged = _merge(fetched, whole)
        if merged.requests:
            whole.replace(output)
    for line in summary(merged) if merged.requests else ():
        click.echo(line)
    if not merged.requests:
        raise RouterError("the recordings have no requests yet: try again later")
    click.echo(f"The trace is {output}")


async def _fetch(
    urls: Sequence[str],
    key: str | None,
    folder: Path,
    show: Callable[[str, int | None], Callable[[int], None]],
) -> list[Fetched]:
    """Each file once, though routers with a shared folder list the same ones."""
    fetched: dict[str, Fetched] = {}
    async with AsyncExitStack() as stack:
        states: list[tuple[RouterRecording, RecordingState]] = []
        for url in dict.fromkeys(urls):
            router = await stack.enter_async_context(RouterRecording(url, key))
            states.append((router, await router.state()))
        for router, state in states:
            wanted = [file for file in state.files if file.file not in fetched]
            progress = show(router.name, sum(file.size for file in wanted))
            for file in wanted:
                path = folder / f"{len(fetched)}.jsonl"
                await router.fetch(file, path, progress)
                fetched[file.file] = Fetched(file, path)
    if not fetched:
        name = ", ".join(router.name for router, _ in states)
        raise RouterError(f"{name}: nothing was recorded; switch it on with pando record URL --on")
    return list(fetched.values())


def _merge(fetched: Sequence[Fetched], whole: Path) -> "Merged":
    """Raises RouterError for a file that is no recording of this release."""
    from pando_sim.traces.errors import TraceError
    from pando_sim.traces.merging import merge

    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as output:
        try:
            return merge([one.path for one in fetched], output)
        except TraceError as error:
            raise RouterError(str(error)) from None
