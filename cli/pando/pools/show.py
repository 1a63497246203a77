"""Reads WorkerPools from the API server, and prints them once or repeatedly."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Self

import click
from kubernetes.aio.client.configuration import Configuration
from rich.console import Console, RenderableType
from rich.live import Live

from pando.pools.table import pools_view
from pando_operator.kube.client import Kube
from pando_operator.kube.errors import KubeError, NotFound
from pando_operator.kube.resources import WORKER_POOLS, Key

EVERY_S = 2.0
PIPED_WIDTH = 160  # characters per line when the output is not a terminal


class Pools:
    """The pools of a namespace, or of all namespaces if it is empty; only the one of `name`, if it
    has one. `async with` closes the connection."""

    def __init__(self, configuration: Configuration, namespace: str, name: str | None) -> None:
        self.namespace = namespace
        self._name = name
        self._kube = Kube(configuration)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kube.close()

    async def read(self) -> list[dict[str, Any]]:
        """By namespace and name. Raises KubeError."""
        try:
            if self._name:
                pools = [await self._kube.get(WORKER_POOLS, Key(self.namespace, self._name))]
            else:
                pools, _ = await self._kube.list(WORKER_POOLS, self.namespace)
        except NotFound as error:
            if self._name and f'"{self._name}"' in str(error):
                raise
            raise KubeError("the cluster has no WorkerPools: install Pando's CRD") from error
        for pool in pools:
            pool["metadata"].pop("managedFields", None)
        return sorted(
            pools, key=lambda pool: (pool["metadata"]["namespace"], pool["metadata"]["name"])
        )


async def print_json(pools: Pools) -> None:
    click.echo(json.dumps({"items": await pools.read()}, indent=2))


async def print_table(pools: Pools, decisions: int) -> None:
    _console().print(_view(pools, await pools.read(), decisions))


async def watch_table(pools: Pools, decisions: int) -> None:
    """Until it is cancelled."""
    first = _view(pools, await pools.read(), decisions)
    with Live(first, console=_console(), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(EVERY_S)
            live.update(_view(pools, await pools.read(), decisions), refresh=True)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def _view(pools: Pools, read: Sequence[dict[str, Any]], decisions: int) -> RenderableType:
    now, is_every = datetime.now(UTC), not pools.namespace
    return pools_view(read, now, decisions=decisions, with_namespace=is_every)
