"""What a fleet on this machine consists of: the commands of its parts, from checked settings."""

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pando.redact import redact
from pando.settings.load import Given, flag_of, load
from pando.settings.passed import PassedPart, words
from pando.up.process import Command
from pando_router.configuration.settings import RouterSettings
from pando_worker.cores import available_cores
from pando_worker.models.config import read_config
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.packaged import PACKAGED
from pando_worker.settings import WorkerSettings


class UpPlanError(Exception):
    """This fleet cannot be started as asked; the message is one line and says why."""


PARTS = (
    PassedPart("worker", WorkerSettings, frozenset(("replica", "url"))),
    PassedPart("router", RouterSettings, frozenset(("leave_seconds",))),
)
"""Whose options `pando up` takes and passes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpPlan:
    """A fleet to start. Everything not said here comes from the components' own variables.

    Attributes:
        worker, router: further settings, from the command line
    """

    model: str
    workers: int
    host: str
    port: int
    redis: str | None  # None starts an embedded one
    drain_seconds: float
    log_level: str
    chat_page: bool = False
    policy: str | None = None  # None leaves it to PANDO_ROUTER_POLICY
    max_total_tokens: int | None = None  # None leaves it to PANDO_WORKER_MAX_TOTAL_TOKENS
    worker: Mapping[str, Given] = field(default_factory=dict)
    router: Mapping[str, Given] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where this machine reaches the router."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def worker_commands(self, redis: str) -> list[Command]:
        shared: dict[str, object] = {
            "model": self.model,
            "host": "127.0.0.1",
            "port": 0,
            "drain_seconds": self.drain_seconds,
        }
        if self.max_total_tokens:
            shared["max_total_tokens"] = self.max_total_tokens
        settings = load(WorkerSettings, {**_ours(shared), **self.worker})
        shared |= {name: given.value for name, given in self.worker.items()}
        shared["threads"] = settings.threads or max(1, available_cores() // self.workers)
        return [
            self._command(f"worker-{i}", "worker", shared | {"replica": f"worker-{i}"}, redis)
            for i in range(self.workers)
        ]

    def router_command(self, redis: str) -> Command:
        values: dict[str, object] = {
            "host": self.host,
            "port": self.port,
            "drain_seconds": self.drain_seconds,
            "leave_seconds": 0,  # no load balancer stands before it
        }
        if self.chat_page:
            values["chat_page"] = True
        if self.policy:
            values["policy"] = self.policy
        load(RouterSettings, {**_ours(values), **self.router})
        values |= {name: given.value for name, given in self.router.items()}
        return self._command("router", "router", values, redis)

    def _command(
        self, name: str, component: str, values: Mapping[str, object], redis: str
    ) -> Command:
        """The URL of Redis may hold a password, and arguments are visible: it is a variable."""
        flags = [word for name, value in values.items() for word in words(name, value)]
        environment = {
            f"PANDO_{component.upper()}_REDIS": redis,
            "PANDO_LOG_LEVEL": self.log_level,
            "PANDO_LOG_FORMAT": "json",  # for log_relay
        }
        return Command(name, (sys.executable, "-m", "pando", component, *flags), environment)


async def check(plan: UpPlan) -> None:
    """Find what can be found before anything is started.

    Raises:
        UpPlanError: the model directory is not one, the port is taken, Redis cannot be reached.
        SettingsError: a PANDO_WORKER_… or PANDO_ROUTER_… variable is wrong.
    """
    plan.worker_commands("none")
    plan.router_command("none")
    _check_model(plan.model)
    _check_port(plan.host, plan.port)
    if plan.redis is not None:
        await _check_redis(plan.redis)


def _check_model(model: str) -> None:
    if Path(model).exists() or model in PACKAGED:
        try:
            read_config(resolve_model(model))
        except ModelError as error:
            raise UpPlanError(f"cannot serve {model}: {error}") from None
    elif model.startswith((".", "/", "~")) or model.count("/") > 1:  # no hub id looks so
        raise UpPlanError(f"there is no model directory or file {model}")


def _check_port(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UpPlanError(
                f"cannot listen on {host} port {port}: {error.strerror};"
                " --host and --port choose another"
            ) from None


async def _check_redis(url: str) -> None:
    # Imported here: it takes long, and most fleets bring their own Redis.
    from pando_fleet.redis.client import FleetError, connect
    from pando_fleet.registry.registry import Registry

    try:
        client = connect(url)
        try:
            await Registry(client).pools()
        finally:
            await client.aclose()
    except FleetError as error:
        raise UpPlanError(f"cannot use Redis at {redact(url)}: {error}") from None


def _words(name: str, value: object) -> list[str]:
    return [flag_of(name)] if value is True else [flag_of(name), str(value)]


def _ours(values: Mapping[str, object]) -> dict[str, Given]:
    return {name: Given(value, "pando up's " + flag_of(name)) for name, value in values.items()}
