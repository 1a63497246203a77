"""The command `pando pools`: its options, and the cluster that they name.

Imports the client of clusters only once there is a cluster, so that a mistake is reported before
that loads.
"""

import asyncio

import click

from pando.usage import StrictCommand
from pando_operator.kube.configuration import load_configuration, own_namespace
from pando_operator.kube.errors import KubeError

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
    configuration = await load_configuration(kubeconfig)
    from pando.pools.show import Pools, print_json, print_table, watch_table

    where = "" if all_namespaces else namespace or own_namespace(kubeconfig)
    async with Pools(configuration, where, name) as pools:
        if output == "json":
            await print_json(pools)
        elif watch:
            await watch_table(pools, decisions)
        else:
            await print_table(pools, decisions)
