"""A running fleet on this machine: starts a plan's parts at once, watches them, ends them all.

async with Fleet(plan, relay) as fleet:
    took = await fleet.ready()
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from pando.up.embedded_redis import embedded_redis
from pando.up.part import Part
from pando.up.plan import ADMIN_KEY, UpPlan
from pando.up.process import Process, Relay
from pando_fleet.guard import Guard
from pando_router.api_keys.keyring import new_key
from pando_router.endpoints.chat import CHAT

if TYPE_CHECKING:
    from pando.up.router_client import RouterClient

POLL_S = 0.05  # between two looks at a part that is starting
GRACE_S = 3.0  # for a part to end, beyond the time it may drain


class Fleet:
    """The parts of one plan, from the beginning of `async with` to its end."""

    def __init__(self, plan: UpPlan, relay: Relay) -> None:
        self.model = ""  # the name under which the model is served, once it is
        self.chats = False  # whether it answers chats; known then, too
        self.needs_key = plan.needs_key
        self._plan = plan
        directory = Path(tempfile.mkdtemp(prefix="pando-"))
        self._guard = Guard(directory)
        self._keeping: list[asyncio.Task[Process]] = []
        commands = []
        if plan.redis is None:
            command, redis_url = embedded_redis(directory)
            commands.append(command)
        else:
            redis_url = plan.redis
        self._key = os.environ.get(ADMIN_KEY) or new_key()
        commands.append(plan.router_command(redis_url, self._key))
        commands.extend(plan.worker_commands(redis_url))
        temporary = {"TMPDIR": str(directory)}  # what a killed process leaves there goes with it
        self._parts = {
            c.name: Part(replace(c, environment={**c.environment, **temporary}), self._guard, relay)
            for c in commands
        }

    async def __aenter__(self) -> "Fleet":
        self._started = monotonic()
        self._keeping = [part.kept.start() for part in self._parts.values()]
        client = await asyncio.to_thread(_router_client)  # meanwhile the parts start
        self.router = client(self._plan.url, self._key)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.router.close()
        grace_s = self._plan.drain_seconds + GRACE_S
        redis = self._parts.get("redis")
        others = [part.kept for part in self._parts.values() if part is not redis]
        await asyncio.gather(*(kept.stop(grace_s) for kept in others))
        if redis:  # last, so that workers can take their leave
            await redis.kept.stop(GRACE_S)
        await asyncio.gather(*self._keeping, return_exceptions=True)
        self._guard.close()

    def kill(self) -> None:
        """End every process at once; leaving `async with` then takes no time."""
        for part in self._parts.values():
            part.kept.kill()

    async def watch(self) -> None:
        """Until a part ends for good; raises PartError when it was never ready."""
        ended, _ = await asyncio.wait(self._keeping, return_when=asyncio.FIRST_COMPLETED)
        for part in ended:
            part.result()

    async def ready(self) -> dict[str, float]:
        """Wait until the fleet answers; returns the seconds each part took to start."""
        checks: dict[str, Callable[[], Awaitable[bool]]] = {
            "redis": self._redis_answers,
            "router": partial(self.router.is_ok, "/healthz"),
        }
        for part, replica in self._plan.replicas.items():
            checks[part] = partial(self._worker_is_ready, replica)
        waits = [self._until(name, check) for name, check in checks.items()]
        return dict(zip(checks, await asyncio.gather(*waits), strict=True))

    async def _until(self, name: str, is_ready: Callable[[], Awaitable[bool]]) -> float:
        while not await is_ready():  # noqa: ASYNC110, another process is asked
            await asyncio.sleep(POLL_S)
        if name in self._parts:  # a Redis of somebody else's is not
            self._parts[name].was_ready = True
        return monotonic() - self._started

    async def _redis_answers(self) -> bool:
        fleet = await self.router.fleet()
        return fleet is not None and fleet.redis == "up"

    async def _worker_is_ready(self, name: str) -> bool:
        fleet = await self.router.fleet()
        for replica in fleet.replicas if fleet else []:
            if replica.replica == name and replica.state == "ready":
                self.model, self.chats = replica.model, CHAT.paths[0] in replica.endpoints
                return True
        return False


def _router_client() -> "type[RouterClient]":
    """Its HTTP client takes a fifth of a second to import."""
    from pando.up.router_client import RouterClient

    return RouterClient
