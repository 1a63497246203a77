"""The command `pando record`: from running routers to one trace."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from pando.record.routers import Fetched, Place, RecordingState, RouterError, RouterRecording
from pando.redact import redact

if TYPE_CHECKING:
    from pando_sim.traces.merging import Merged

_HELP = """Fetch the recordings of all routers of a fleet, as one trace for pando sim.

Without URL it asks the routers of a release on Kubernetes: in the cluster of KUBECONFIG or
~/.kube/config, through the API server. URL is a router's, such as http://127.0.0.1:8000; give one
for each router that has a disk of its own. With --on or --off it switches the recording of all
routers that share a Redis instead. An admin's API key is read from OPENAI_API_KEY."""


@click.command("record", help=_HELP)
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("trace.jsonl"),
    show_default=True,
    help="file for the trace",
)
@click.option(
    "--cost-model",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="also write the cost model of the workers, from what they measured meanwhile",
)
@click.option(
    "--pool", help="pool of the cost model; by default the one with the most measurements"
)
@click.option("-n", "--namespace", help="namespace of the release; by default the context's")
@click.option("--release", help="name of the release, if the namespace has several")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    help="kubeconfig file of the cluster",
)
@click.option("--on/--off", "on", default=None, help="switch the recording, and fetch nothing")
@click.option("--status", is_flag=True, help="show what each router records, and fetch nothing")
def command(
    urls: tuple[str, ...],
    output: Path,
    cost_model: Path | None,
    pool: str | None,
    namespace: str | None,
    release: str | None,
    kubeconfig: str | None,
    on: bool | None,
    status: bool,
) -> None:
    for url in urls:
        if not re.match(r"https?://[^/]", url):
            raise click.UsageError(
                f"URL is {redact(url)!r}: it must be a router's, such as http://127.0.0.1:8000"
            )
    if urls and (namespace or release or kubeconfig):
        raise click.UsageError(
            "URL names routers, --namespace, --release and --kubeconfig find them on Kubernetes:"
            " leave out one of them"
        )
    if on is not None and status:
        raise click.UsageError("--status shows, --on and --off switch: leave out one of them")
    if pool is not None and cost_model is None:
        raise click.UsageError("--pool is that of the cost model: give --cost-model, too")
    api_key = os.environ.get("OPENAI_API_KEY")  # an option would show it in `ps`
    cluster = kubeconfig or ""
    routers = (
        partial(_by_url, urls) if urls else partial(_on_kubernetes, namespace, release, cluster)
    )
    try:
        if on is not None or status:
            asyncio.run(_switch(routers, on, api_key))
        else:
            _fetch_and_merge(routers, output, api_key)
            if cost_model is not None:
                learned = None if urls else partial(_learned_start, namespace, cluster)
                _write_cost_model(output, cost_model, pool, learned)
    except RouterError as error:
        raise click.ClickException(f"record: {redact(str(error))}") from None
    except OSError as error:
        what = error.filename or output
        raise click.ClickException(f"record: cannot write {what}: {error.strerror}") from None


Routers = Callable[[], Awaitable[Sequence[Place]]]


async def _by_url(urls: Sequence[str]) -> Sequence[Place]:
    return [Place.of_url(url) for url in dict.fromkeys(urls)]


async def _on_kubernetes(
    namespace: str | None, release: str | None, kubeconfig: str
) -> Sequence[Place]:
    from pando.record.cluster import routers_of

    found = await routers_of(namespace, release, kubeconfig)
    for name in found.not_ready:
        click.echo(f"pod {name} is not ready, and is not asked", err=True)
    return found.routers


def _learned_start(namespace: str | None, kubeconfig: str, pool: str) -> float | None:
    from pando.record.cluster import start_seconds

    try:
        return asyncio.run(start_seconds(pool, namespace, kubeconfig))
    except RouterError as error:
        click.echo(f"how long replicas take to start is what routers saw: {error}", err=True)
        return None


async def _switch(routers: Routers, on: bool | None, key: str | None) -> None:
    for place in await routers():
        async with RouterRecording(place, key) as router:
            state = await router.state() if on is None else await router.switch(on)
            click.echo(f"{router.name}: {_in_words(state)}")


def _in_words(state: RecordingState) -> str:
    size = sum(file.size for file in state.files)
    whose = "" if state.changed is None else ", as it was switched for all routers"
    files = f"{len(state.files)} files, {size / 2**20:,.1f} MiB"
    return f"recording is {'on' if state.on else 'off'}{whose}; {files}"


def _fetch_and_merge(routers: Routers, output: Path, key: str | None) -> None:
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

        fetched = asyncio.run(_fetch(routers, key, folder, show))
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
    routers: Routers,
    key: str | None,
    folder: Path,
    show: Callable[[str, int | None], Callable[[int], None]],
) -> list[Fetched]:
    """Each file once, though routers with a shared folder list the same ones."""
    fetched: dict[str, Fetched] = {}
    async with AsyncExitStack() as stack:
        states: list[tuple[RouterRecording, RecordingState]] = []
        for place in await routers():
            router = await stack.enter_async_context(RouterRecording(place, key))
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
        raise RouterError(f"{name}: nothing was recorded; switch it on with --on")
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


def _write_cost_model(
    trace: Path, path: Path, pool: str | None, learned: Callable[[str], float | None] | None
) -> None:
    """
    Args:
        learned: the time that a pool's replicas take to start, by the operator.

    Raises RouterError if the recording does not show it, OSError.
    """
    from pando_sim.cost.files import render
    from pando_sim.cost.schema import CostModelError
    from pando_sim.proof.workers import measured_cost, observed_workers

    pools = observed_workers(trace)
    names = ", ".join(one.pool for one in pools) or "none"
    chosen = next((one for one in pools if pool in (None, one.pool)), None)
    if chosen is None:
        raise RouterError(f"the recording has no pool {pool!r}; its pools: {names}")
    name = re.sub(r"[^a-z0-9.]+", "-", path.stem.lower()).strip("-.") or "cluster"
    try:
        file = measured_cost(chosen, name, learned(chosen.pool) if learned else None)
    except CostModelError as error:
        raise RouterError(f"no cost model: {error}") from None
    path.write_bytes(render(file))
    assert file.quality is not None and file.worker is not None
    starts = "" if file.start_s is None else f", ready {file.start_s:g} s after their creation"
    click.echo(
        f"The cost model of pool {chosen.pool} is {path}: {file.worker.capacity_tokens:,} KV tokens"
        f" a replica{starts}; off by {file.quality.median_error:.1%} in the median of"
        f" {file.quality.observations:,} measurements"
    )
