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
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.packaged import PACKAGED
from pando_worker.models.loading.preflight import preflight
from pando_worker.settings import WorkerSettings


class UpPlanError(Exception):
    """This fleet cannot be started as asked; the message is one line and says why."""


PARTS = (
    PassedPart("worker", WorkerSettings, frozenset(("replica", "url"))),
    PassedPart("router", RouterSettings, frozenset(("leave_seconds",))),
)
"""Whose options `pando up` takes and passes on."""

ADMIN_KEY = "PANDO_ROUTER_ADMIN_KEY"


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
    tag: str = ""  # ends the replicas' names; other fleets in the same Redis have others
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
        settings = self._worker_settings(shared)
        shared |= {name: given.value for name, given in self.worker.items()}
        shared["threads"] = settings.threads or max(1, available_cores() // self.workers)
        return [
            self._command(part, "worker", shared | {"replica": replica}, redis)
            for part, replica in self.replicas.items()
        ]

    @property
    def replicas(self) -> dict[str, str]:
        """The workers' names in the fleet, by the names of the parts."""
        return {f"worker-{i}": f"worker-{i}{self.tag}" for i in range(self.workers)}

    @property
    def needs_key(self) -> bool:
        """Whether the router will require API keys."""
        return self._router_settings({}).api_keys is not None

    def router_command(self, redis: str, admin_key: str) -> Command:
        """
        Args:
            admin_key: with which this machine may ask the router everything
        """
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
        self._router_settings(values)
        values |= {name: given.value for name, given in self.router.items()}
        secret = {ADMIN_KEY: admin_key}
        return self._command("router", "router", values, redis, secret)

    def served_as(self) -> tuple[str, str]:
        """The workers' pool, and the name under which they serve the model."""
        settings = self.worker_settings()
        return settings.pool, settings.served_name

    def worker_settings(self) -> WorkerSettings:
        """Of any of the workers, but for what distinguishes them."""
        return self._worker_settings({"model": self.model})

    def _router_settings(self, ours: Mapping[str, object]) -> RouterSettings:
        return load(RouterSettings, {**_ours(ours), **self.router})

    def _worker_settings(self, ours: Mapping[str, object]) -> WorkerSettings:
        return load(WorkerSettings, {**_ours(ours), **self.worker})

    def _command(
        self,
        name: str,
        component: str,
        values: Mapping[str, object],
        redis: str,
        secrets: Mapping[str, str] | None = None,
    ) -> Command:
        """The URL of Redis may hold a password, and arguments are visible: it is a variable."""
        flags = [word for name, value in values.items() for word in words(name, value)]
        environment = {
            **(secrets or {}),
            f"PANDO_{component.upper()}_REDIS": redis,
            "PANDO_LOG_LEVEL": self.log_level,
            "PANDO_LOG_FORMAT": "json",  # for log_relay
        }
        return Command(name, (sys.executable, "-m", "pando", component, *flags), environment)


async def check(plan: UpPlan) -> None:
    """Find what can be found before anything is started.

    Raises:
        UpPlanError: the model cannot be served as it is, the port is taken, Redis cannot be reached
            or has another model in the same pool.
        SettingsError: a PANDO_WORKER_… or PANDO_ROUTER_… variable is wrong.
    """
    plan.worker_commands("none")
    plan.router_command("none", "")
    _check_given(plan.model, plan.worker_settings())
    _check_port(plan.host, plan.port)
    if plan.redis is not None:
        await _check_redis(plan.redis, *plan.served_as())


def check_model(model: str, model_dir: Path, settings: WorkerSettings) -> None:
    """Raises UpPlanError if the files of the model cannot be served as they are."""
    try:
        preflight(model_dir, settings)
    except ModelError as error:
        raise UpPlanError(f"cannot serve {model}: {error}") from None


def _check_given(model: str, settings: WorkerSettings) -> None:
    if Path(model).expanduser().exists() or model in PACKAGED:
        try:
            model_dir = resolve_model(model)
        except ModelError as error:
            raise UpPlanError(f"cannot serve {model}: {error}") from None
        check_model(model, model_dir, settings)
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


async def _check_redis(url: str, pool: str, model: str) -> None:
    # Imported here: it takes long, and most fleets bring their own Redis.
    from pando_fleet.redis.client import FleetError, connect
    from pando_fleet.redis.layout.constants import FRESH_MS
    from pando_fleet.registry.registry import Registry

    try:
        client = connect(url)
        try:
            registry = Registry(client)
            await registry.pools()
            others = [one.beat for one in await registry.replicas(pool) if one.age_ms <= FRESH_MS]
        finally:
            await client.aclose()
    except FleetError as error:
        raise UpPlanError(f"cannot use Redis at {redact(url)}: {error}") from None
    for other in others:
        if other.model != model:
            raise UpPlanError(
                f"the pool {pool!r} in Redis at {redact(url)} serves {other.model!r}"
                f" ({other.replica} at {other.url}), this fleet would serve {model!r}: --pool gives"
                " it a pool of its own"
            )


def _ours(values: Mapping[str, object]) -> dict[str, Given]:
    return {name: Given(value, "pando up's " + flag_of(name)) for name, value in values.items()}
