"""The faults of a soak, one at a time, drawn by a seed; each ends by itself."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable

from tests.soak.fleet import SoakFleet, WorkerProcess
from tests.soak.relay import Wire

Fault = Callable[[], Awaitable[None]]


class Faults:
    def __init__(self, fleet: SoakFleet, rng: random.Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self.done: Counter[str] = Counter()

    async def run(self, stop: asyncio.Event, every_s: float) -> None:
        """Causes faults until `stop`, then waits until everything works again."""
        faults: list[tuple[int, Fault]] = [
            (6, self.light_worker_killed),
            (3, self.light_worker_hangs),
            (2, self.redis_restarted),
            (2, self.redis_frozen),
            (3, self.wire_holds),
            (3, self.wire_drops),
        ]
        if self._fleet.real:
            faults.append((1, self.real_worker_killed))
        weights, acts = zip(*faults, strict=True)
        left = list(acts)  # each one once before any occurs twice
        self._rng.shuffle(left)
        while not stop.is_set():
            act = left.pop() if left else self._rng.choices(acts, weights)[0]
            await act()
            self.done[act.__name__] += 1
            with_pause = self._rng.uniform(0.2, 1.8) * every_s
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait([stopping], timeout=with_pause)
            stopping.cancel()

    async def light_worker_killed(self) -> None:
        await self._kill(self._rng.choice(self._fleet.light), self._rng.uniform(0.0, 4.0))

    async def real_worker_killed(self) -> None:
        await self._kill(self._rng.choice(self._fleet.real), 0.0)

    async def _kill(self, worker: WorkerProcess, away_s: float) -> None:
        await worker.kill()
        await asyncio.sleep(away_s)
        await worker.start()

    async def light_worker_hangs(self) -> None:
        worker = self._rng.choice(self._fleet.light)
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(self._rng.uniform(0.5, 7.0))
        worker.signal(signal.SIGCONT)

    async def redis_restarted(self) -> None:
        self._fleet.redis.stop()
        await asyncio.sleep(self._rng.uniform(0.0, 3.0))
        await asyncio.to_thread(self._fleet.redis.start)

    async def redis_frozen(self) -> None:
        self._fleet.redis.freeze()
        await asyncio.sleep(self._rng.uniform(0.2, 3.0))
        self._fleet.redis.thaw()

    async def wire_holds(self) -> None:
        await self._wire(Wire.HOLDS)

    async def wire_drops(self) -> None:
        await self._wire(Wire.DROPS)

    async def _wire(self, state: Wire) -> None:
        wire = self._rng.choice(self._fleet.wires)
        wire.set(state)
        await asyncio.sleep(self._rng.uniform(0.2, 5.0))
        wire.set(Wire.PASSES)
