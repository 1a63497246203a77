"""`RouterRecording`: a router's recorder, its switch and its lines about the fleet."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from pando_fleet.records.recording import RecordingSwitches
from pando_router.configuration.live import Live
from pando_router.fleet_view.view import FleetView
from pando_router.recording.fleet_states import FleetStates
from pando_router.recording.form import STATE_S
from pando_router.recording.recorder import Part, Recorder
from pando_router.recording.switch import Switch
from pando_router.telemetry.metrics import Metrics

FOLLOW_S = 1.0


class RouterRecording:
    """`begin` before the first request, `run` beside them, `close` at the end. `recorder` observes
    the requests."""

    def __init__(
        self,
        live: Live,
        path: Path,
        part: Part,
        router: str,
        switches: RecordingSwitches,
        view: FleetView,
        policy: Callable[[str], str],
        queue_lengths: Callable[[], Mapping[str, int]],
        metrics: Metrics,
    ) -> None:
        self.path = path
        self.switch = Switch(live, switches, part.secret)
        self.recorder = Recorder(live, path, part, self.switch, router, metrics)
        self._view = view
        self._states = FleetStates(router, policy, queue_lengths)
        self._state_at = float("-inf")
        self._unrecorded = 0  # at the last line about the fleet

    async def begin(self) -> None:
        await self.switch.look()
        self.recorder.adopt_secret()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.switch.run())
            tasks.create_task(self.recorder.run())
            tasks.create_task(self._follow())

    async def close(self) -> None:
        if self.switch.on and self._view.fleet.pools:
            self._add_state()
        await self.recorder.close()

    async def _follow(self) -> None:
        while True:
            if self._view.is_known:
                self._states.follow(self._view.fleet, self.recorder.now)
            if not self.switch.on:
                self._state_at = float("-inf")  # a recording begins with a line about the fleet
            elif self.recorder.now - self._state_at >= STATE_S:
                self._add_state()
            await asyncio.sleep(FOLLOW_S)

    def _add_state(self) -> None:
        self._state_at = self.recorder.now
        unrecorded = self.recorder.unrecorded - self._unrecorded
        self._unrecorded = self.recorder.unrecorded
        self.recorder.add(self._states.line(self._view.fleet, self._state_at, unrecorded))
