"""The command `pando pools`: reads WorkerPools from the API server and shows them, once or
repeatedly."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from pando.pools.table import pools_view
from pando.usage import StrictCommand
from pando_operator.kube.client import Kube, load_configuration, own_namespace
from pando_operator.kube.errors import KubeError, NotFound
from pando_operator.kube.resources import WORKER_POOLS, Key

EVERY_S = 2.0
PIPED_WIDTH = 160  # characters per line when the output is not a terminal

_HELP = """Show the WorkerPools of a cluster: replicas, pressure and the last decisions.

With NAME it shows only that pool. The cluster is that of the pod in which this runs, else the one
that KUBECONFIG or ~/.kube/config names."""


def pools_command() -> click.Command:
    return StrictCommand("pools", callback=_run, params=_parameters(), help=_HELP)


def _parameters() -> list[click.Parameter]:
    return [
        click.Argument(["name"], required=False),
        click.Option(["-n", "--namespace"], help="namespace; by default that of the context"),
        click.Option(["-A", "--all-namespaces"], is_flag=True, help="show pools of all namespaces"),
        click.Option(
            ["--kubeconfig"],
            type=click.Path(exists=True, dir_okay=False),
            help="kubeconfig file of the cluster",
        ),
        click.Option(
            ["-d", "--decisions"],
            type=click.IntRange(0, 10),
            default=3,
            show_default=True,
            help="number of last decisions to show for each pool",
        ),
        click.Option(["-w", "--watch"], is_flag=True, help="refresh every 2 seconds"),
        click.Option(
            ["-o", "--output"],
            type=click.Choice(["table", "json"]),
            default="table",
            show_default=True,
            help="output format; json prints the whole objects",
        ),
    ]


def _run(
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: str | None,
    decisions: int,
    watch: bool,
    output: str,
) -> None:
    if namespace and all_namespaces:
        raise click.UsageError("--namespace and --all-namespaces exclude each other")
    if name and all_namespaces:
        raise click.UsageError("a NAME needs one namespace: leave out --all-namespaces")
    if watch and output == "json":
        raise click.UsageError("--watch shows a table: leave out --watch or --output json")
    show = _show(name, namespace, all_namespaces, kubeconfig or "", decisions, watch, output)
    try:
        asyncio.run(show)
    except KubeError as error:
        raise click.ClickException(" ".join(str(error).split())) from error


async def _show(
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    kubeconfig: str,
    decisions: int,
    watch: bool,
    output: str,
) -> None:
    kube = Kube(await load_configuration(kubeconfig))
    try:
        where = "" if all_namespaces else namespace or own_namespace(kubeconfig)
        pools = await _read(kube, where, name)
        if output == "json":
            click.echo(json.dumps({"items": pools}, indent=2))
            return
        console = Console()
        if not console.is_terminal:
            console = Console(width=PIPED_WIDTH)

        def view(pools: Sequence[dict[str, Any]]) -> Any:
            now = datetime.now(UTC)
            return pools_view(pools, now, decisions=decisions, with_namespace=all_namespaces)

        if not watch:
            console.print(view(pools))
            return
        with Live(view(pools), console=console, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(EVERY_S)
                live.update(view(await _read(kube, where, name)), refresh=True)
    finally:
        await kube.close()


async def _read(kube: Kube, namespace: str, name: str | None) -> list[dict[str, Any]]:
    try:
        if name:
            pools = [await kube.get(WORKER_POOLS, Key(namespace, name))]
        else:
            pools, _ = await kube.list(WORKER_POOLS, namespace)
    except NotFound as error:
        if name and f'"{name}"' in str(error):
            raise
        raise KubeError("the cluster has no WorkerPools: install Pando's CRD") from error
    for pool in pools:
        pool["metadata"].pop("managedFields", None)
    return sorted(pools, key=lambda pool: (pool["metadata"]["namespace"], pool["metadata"]["name"]))
