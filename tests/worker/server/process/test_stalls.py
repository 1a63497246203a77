"""A stalled engine: what the worker reports, to whom, and when it gives up."""

import asyncio
import json
import os
import time
from dataclasses import dataclass, field

import aiohttp
import psutil
import pytest

from pando_fleet.registry.replica import ReplicaState
from pando_worker.server.process.watchdog import STALL_S, cpu_s, watch
from pando_worker.stacks import STACKS_SIGNAL
from tests.waiting import PATIENCE_S
from tests.worker.server.process.test_heartbeat import fleet_at
from tests.worker.server.process.test_lifecycle import SLOW, error_of
from tests.worker.server.process.worker_process import WorkerProcess, metric, until
from tests.worker.server.stand_in import Trick

STALLED = "pando_worker_engine_stalled"


@pytest.mark.e2e
async def test_a_stalled_worker_says_so_and_is_ready_again_when_its_engine_speaks(
    valkey_url: str,
) -> None:
    async with fleet_at(valkey_url) as fleet:
        with WorkerProcess.start(redis=valkey_url, pool="p") as worker:
            async with aiohttp.ClientSession(worker.url) as http:
                await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
                async with http.post("/generate", json=SLOW) as running:
                    await running.content.readline()
                    worker.scheduler().suspend()
                    await fleet.shows(lambda beat: beat.state is ReplicaState.STALLED)
                    worker.logged(r"has not responded for 5\.\d s: this worker is stalled")
                    for path in ("/readyz", "/health", "/ping", "/health_generate"):
                        async with http.get(path) as answer:
                            assert await error_of(answer) == (503, "engine_stalled")
                    async with http.post("/generate", json=SLOW) as answer:
                        assert await error_of(answer) == (503, "engine_stalled")
                    async with http.get("/healthz") as answer:
                        assert answer.status == 200
                    assert await metric(http, STALLED) == 1

                    worker.scheduler().resume()
                    await fleet.shows(lambda beat: beat.state is ReplicaState.READY)
                    async with http.get("/readyz") as answer:
                        assert answer.status == 200
                    assert await metric(http, STALLED) == 0
                    *_, last, done = (await running.text()).strip().split("\n\n")
                    assert done == "data: [DONE]"
                    assert json.loads(last[6:])["meta_info"]["completion_tokens"] == 60
            worker.logged("the engine responds again")


@pytest.mark.e2e
async def test_a_stalled_worker_forgets_requests_whose_clients_leave() -> None:
    """Requests aborted during the stall end as soon as the engine works again."""
    with WorkerProcess.start() as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            queued = {"text": "x", "stream": True, "sampling_params": {"seed": Trick.QUEUED}}
            waiting = asyncio.ensure_future(http.post("/generate", json=queued))

            async def runs() -> bool:
                return await metric(http, "pando_worker_running_requests") == 1

            await until(runs)
            worker.scheduler().suspend()
            await asyncio.to_thread(worker.logged, "this worker is stalled")
            waiting.cancel()
            worker.scheduler().resume()

            async def aborted() -> bool:
                return await metric(http, "pando_worker_aborted_requests_total") == 1

            await until(aborted)


@pytest.mark.e2e
async def test_a_stuck_engine_ends_requests_clearly_and_the_process() -> None:
    with WorkerProcess.start(watchdog_seconds=1) as worker:
        async with (
            aiohttp.ClientSession(worker.url) as http,
            http.post("/generate", json=SLOW) as running,
        ):
            await running.content.readline()
            worker.scheduler().suspend()
            last = (await running.text()).strip().split("\n\n")[-1]
            assert json.loads(last[6:])["error"]["code"] == "engine_gone"
        assert await worker.exit_code() == 1
        worker.logged("it is stuck")
        worker.logged(r"stacks of rank-0 \(process \d+\): none within 2 s: State:\sT \(stopped\)")


@pytest.mark.e2e
async def test_the_end_of_a_deadlocked_engine_shows_the_stacks_of_its_threads() -> None:
    with WorkerProcess.start(watchdog_seconds=1) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            locked = SLOW | {"sampling_params": {"seed": Trick.LOCKS, "max_new_tokens": 60}}
            async with http.post("/generate", json=locked) as answer:
                assert await error_of(answer) == (503, "engine_gone")
        assert await worker.exit_code() == 1
        assert "in _lock_for_ever\n" in worker.log, worker.log


@pytest.mark.e2e
async def test_the_http_process_shows_its_stacks_when_asked() -> None:
    with WorkerProcess.start() as worker:
        worker.signal(STACKS_SIGNAL)
        await asyncio.to_thread(worker.logged, r"lifecycle\.py\", line \d+ in serve")
        async with aiohttp.ClientSession(worker.url) as http, http.get("/readyz") as answer:
            assert answer.status == 200


@pytest.mark.e2e
async def test_a_stuck_rank_ends_the_worker_with_the_stacks_of_all_ranks() -> None:
    with WorkerProcess.start(
        stand_in=False, tensor_parallel_size=2, threads=2, watchdog_seconds=1
    ) as worker:
        children = worker.children()
        [rank] = worker.other_ranks()
        async with aiohttp.ClientSession(worker.url) as http:
            few, many = (
                {"text": "x", "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}
                for tokens in (8, 2000)
            )
            async with http.post("/generate", json=few) as answer:
                assert answer.status == 200
            async with http.post("/generate", json=many | {"stream": True}) as running:
                await running.content.readline()
                rank.suspend()
                assert "engine_gone" in await running.text()
        assert await worker.exit_code() == 1
        worker.logged(r"stacks of rank-0 \(process \d+\): (Current thread|Thread) 0x")
        worker.logged(r"stacks of rank-1 \(process \d+\): none within 2 s: State:\sT \(stopped\)")
        assert "in _take_result\n" in worker.log, "rank 0 waits for the step"
        # The one that is stopped, too.
        assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]


@dataclass
class Engine:
    events_heard: int = 0
    announced_s: float = 0.0
    verdicts: list[bool] = field(default_factory=list)

    def judge(self, silent_s: float, *, is_stalled: bool) -> None:
        if [is_stalled] != self.verdicts[-1:]:
            self.verdicts.append(is_stalled)


async def test_an_engine_that_goes_on_talking_is_not_stuck() -> None:
    engine = Engine()
    watching = asyncio.ensure_future(watch(engine, 0.25))
    for _ in range(30):
        engine.events_heard += 1
        await asyncio.wait([watching], timeout=0.01)
    assert not watching.done()
    await asyncio.wait_for(watching, PATIENCE_S)


async def test_a_silent_engine_that_computes_has_ten_times_as_long() -> None:
    spent_s = 0.0

    def computed_s() -> float:
        nonlocal spent_s
        spent_s += 0.01
        return spent_s

    silent_s = await asyncio.wait_for(watch(Engine(), 0.25, computed_s), PATIENCE_S)
    assert silent_s == pytest.approx(2.5, rel=0.01)


def test_the_cpu_time_of_a_process_is_known() -> None:
    before_s = cpu_s(os.getpid())
    while cpu_s(os.getpid()) - before_s < 0.1:
        pass
    assert time.process_time() <= cpu_s(os.getpid()) <= time.process_time()
    assert cpu_s(2**22 - 1) == 0.0


async def test_a_silence_that_was_announced_is_none() -> None:
    engine = Engine(announced_s=0.5)
    silent_s = await asyncio.wait_for(watch(engine, 0.25), PATIENCE_S)
    assert 0.75 <= silent_s < 0.8
    assert STALL_S > 0.25
    assert engine.verdicts == [False]
