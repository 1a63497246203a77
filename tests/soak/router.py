"""Two routers under load and faults, until the time is up; then everything must add up.

    python -m tests.soak.router --minutes 20 --seed 1

Every request must end in one of three ways (see `clients`). At the end no lease, no request in
flight, no queue entry and no KV page may be left, and the routers' memory must be flat. Otherwise
the exit code is 1 and the problems are printed.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import click
import redis.asyncio as redis_client

from tests.soak.clients import Client, End
from tests.soak.faults import Faults
from tests.soak.fleet import LEASE_S, REAL_MODEL, SoakFleet

READY_S = 90.0  # real workers load a model on a busy machine
GROWTH = 1.15  # of a router's memory, from a third of the time to the end
GROWTH_BYTES = 12 * 2**20  # in addition


@dataclass
class Report:
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind
    faults: Counter[str] = field(default_factory=Counter)
    rss: list[int] = field(default_factory=list)  # bytes, sampled evenly
    lease_wait_s: float = 0.0  # until the last lease was gone
    problems: list[str] = field(default_factory=list)

    def total(self, end: str) -> int:
        return sum(count for (_, each), count in self.ends.items() if each == end)

    def check_ends(self) -> None:
        """Each sent request must have ended in one of the three ways."""
        sent = self.total("sent")
        ended = sum(self.total(end) for end in End)
        if sent != ended:
            self.problems.append(f"{sent} requests were sent, {ended} ended")
        for (kind, end), count in sorted(self.ends.items()):
            if end.startswith("lost"):
                self.problems.append(f"{count} of {kind}: {end}")
        for kind in ("whole", "stream", "reads_slowly"):
            if not self.ends[kind, End.FINISHED]:
                self.problems.append(f"not one of {kind} was answered")

    def check_memory(self) -> None:
        early = max(self.rss[: len(self.rss) // 3 + 1])
        if self.rss[-1] > early * GROWTH + GROWTH_BYTES:
            samples = [f"{size >> 20}" for size in self.rss[:: max(1, len(self.rss) // 20)]]
            self.problems.append(f"a router grew, MiB: {' '.join(samples)}")

    def __str__(self) -> str:
        lines = [f"sent {self.total('sent')}: " + ", ".join(f"{self.total(e)} {e}" for e in End)]
        for kind in sorted({kind for kind, _ in self.ends}):
            ends = {end: n for (each, end), n in self.ends.items() if each == kind}
            lines.append(f"  {kind}: " + ", ".join(f"{n} {end}" for end, n in ends.items()))
        lines.append("faults: " + ", ".join(f"{n} {name}" for name, n in self.faults.items()))
        lines.append(
            f"router memory, MiB: {self.rss[0] >> 20} … {self.rss[-1] >> 20};"
            f" last lease gone after {self.lease_wait_s:.1f} s"
        )
        return "\n".join(lines + [f"WRONG: {problem}" for problem in self.problems])


async def soak(
    minutes: float, seed: int, *, clients: int, light: int, real: int, fault_every_s: float
) -> Report:
    rng = random.Random(seed)
    report = Report()
    async with SoakFleet(light, real) as fleet:
        await _until(fleet.all_ready, "all workers being ready", READY_S)
        calm, stop = asyncio.Event(), asyncio.Event()
        real_model = REAL_MODEL if real else None
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                port = fleet.routers[number % 2].port
                client = Client(port, real_model, random.Random(rng.random()))
                group.create_task(_one(client, stop, report))
            faults = Faults(fleet, random.Random(rng.random()))
            report.faults = faults.done
            faulting = group.create_task(faults.run(calm, fault_every_s))
            end = time.monotonic() + minutes * 60
            while time.monotonic() < end:
                report.rss.append(fleet.router_rss())
                await asyncio.sleep(max(0.5, minutes * 0.6))
            calm.set()
            await faulting
            await _check(report, fleet.all_ready, "all workers being ready again", READY_S)
            # Leases lost by a fault end by themselves. Any that is left later was lost without a
            # fault.
            await asyncio.sleep(LEASE_S + 1.0)
            stop.set()
        await _audit(fleet, report)
        report.rss.append(fleet.router_rss())
    report.check_ends()
    report.check_memory()
    return report


async def _one(client: Client, stop: asyncio.Event, report: Report) -> None:
    def note(kind: str, end: str) -> None:
        report.ends[kind, end] += 1

    async with aiohttp.ClientSession() as session:
        await client.run(session, stop, note)


async def _audit(fleet: SoakFleet, report: Report) -> None:
    """Check that nothing is left."""
    began = time.monotonic()

    async def routers_idle() -> bool:
        for router in fleet.routers:
            said = (await router.get("/fleet")).json
            if any(said["queues"].values()):
                return False
            if any(row["in_flight"] for rows in said["pools"].values() for row in rows):
                return False
            if await router.metric("pando_router_requests_in_flight"):
                return False
        return True

    await _check(report, routers_idle, "routers without a request in flight or in a queue", 10.0)

    async with redis_client.Redis(port=fleet.redis.port) as redis:

        async def no_queue_in_redis() -> bool:
            return not [name async for name in redis.scan_iter("pando:*queues*")]

        async def no_lease() -> bool:
            names = [name async for name in redis.scan_iter("pando:{*}:leases")]
            return not any([await redis.zcard(name) for name in names])

        await _check(report, no_lease, "Redis without a lease", LEASE_S / 2)
        report.lease_wait_s = time.monotonic() - began
        await _check(report, no_queue_in_redis, "Redis without a queue entry", 10.0)

    async def no_pages() -> bool:
        rows = await fleet.replicas(fleet.routers[0])
        for row in rows:
            if row["model"] == REAL_MODEL:
                if row["pinned_tokens"] or row["running"] or row["waiting"]:
                    return False
                continue
            async with fleet.session.get(row["url"] + "/healthz") as answer:
                if any((await answer.json()).values()):
                    return False
        return True

    await _check(report, no_pages, "workers without a page, a running or a waiting request", 20.0)


async def _check(
    report: Report, condition: Callable[[], Awaitable[bool]], what: str, seconds: float
) -> None:
    try:
        await _until(condition, what, seconds)
    except TimeoutError as error:
        report.problems.append(str(error))


async def _until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:.0f} s still not: {what}")
        await asyncio.sleep(0.1)


@click.command()
@click.option("--minutes", type=float, default=20, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="of clients and faults")
@click.option("--clients", type=int, default=32, show_default=True, help="asking at once")
@click.option("--light", type=int, default=4, show_default=True, help="workers without a model")
@click.option("--real", type=int, default=2, show_default=True, help="workers with pando-tiny")
@click.option("--fault-every", type=float, default=4.0, show_default=True, help="seconds")
def main(
    minutes: float, seed: int, clients: int, light: int, real: int, fault_every: float
) -> None:
    """Two routers under load and faults; then everything must add up."""
    report = asyncio.run(
        soak(minutes, seed, clients=clients, light=light, real=real, fault_every_s=fault_every)
    )
    click.echo(report)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
