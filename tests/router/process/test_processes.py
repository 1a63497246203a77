"""Several router processes on one port."""

import asyncio
import os
import signal

import psutil
import pytest

from tests.router.process.router_process import is_ready, router_process
from tests.router.world import Replica, RouterClient, completion, never, streaming, until
from tests.waiting import PATIENCE_S, command_of, read_each

pytestmark = pytest.mark.e2e

ANSWERED = 'pando_router_requests_total{path="/v1/completions",status="200"}'


def siblings(parent: int) -> set[int]:
    """Process ids of the routers under this parent."""
    children = read_each(psutil.Process(parent).children(), command_of)
    return {child.pid for child, command in children if "spawn_main" in command}


def listens(pid: int) -> bool:
    connections = psutil.Process(pid).net_connections("tcp")
    return any(connection.status == psutil.CONN_LISTEN for connection in connections)


async def answered(router: RouterClient, count: int) -> bool:
    """Another process's counts may be a second old."""
    return await router.metric(ANSWERED) == count


async def test_requests_reach_all_processes_and_metrics_are_the_sum(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        router_process(valkey_url, processes=2) as (parent, router),
    ):
        await until(lambda: len(siblings(parent.pid)) == 2, "two processes")
        pids = siblings(parent.pid)
        await until(lambda: all(map(listens, pids)), "both listening")
        for _ in range(20):
            assert (await router.post("/v1/completions", completion())).status == 200

        async def redis_is_up() -> bool:  # for both: the minimum of their values
            return await router.metric("pando_router_redis_up") == 1

        await until(redis_is_up, "both seeing Redis")
        await until(lambda: answered(router, 20), "what both have counted")
        for _ in range(4):  # whichever process answers
            assert await router.metric(ANSWERED) == 20
            assert await router.metric("pando_router_requests_in_flight") == 0
        parent.terminate()
        assert await parent.wait() == 0


async def test_the_queues_of_all_processes_are_one_number_and_an_unknown_request_may_be_anothers(
    valkey_url: str,
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        router_process(valkey_url, processes=2, max_replica_requests=1) as (parent, router),
    ):
        pids = siblings(parent.pid)
        await until(lambda: all(map(listens, pids)), "both listening")
        a.answer = never
        asking = [
            asyncio.create_task(router.post("/v1/completions", completion())) for _ in range(13)
        ]

        async def all_wait() -> bool:  # by whichever process is asked
            sample = 'pando_router_queue_requests{pool="default"}'
            return [await router.metric(sample) for _ in range(6)] == [12] * 6

        await until(all_wait, "12 of 13 requests in queues, of both processes together")
        unknown = await router.get("/route/explain?request_id=nobody")
        assert unknown.status == 404
        assert "another of its 2 processes may have it" in unknown.json["error"]["message"]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_process_that_dies_is_replaced_and_its_counts_stay(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        router_process(valkey_url, processes=2) as (parent, router),
    ):
        for _ in range(10):
            await router.post("/v1/completions", completion())
        await until(lambda: answered(router, 10), "what both have counted")
        before = siblings(parent.pid)
        os.kill(min(before), signal.SIGKILL)

        def replaced() -> bool:
            now = siblings(parent.pid)
            return len(now) == 2 and now != before

        await until(replaced, "another process")
        await until(lambda: is_ready(router), "an answer")
        assert await router.metric(ANSWERED) == 10
        parent.terminate()
        assert await parent.wait() == 0


async def test_all_processes_drain_and_a_second_signal_ends_them_at_once(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        router_process(valkey_url, processes=2) as (parent, router),
        streaming(router, a),
    ):
        parent.send_signal(signal.SIGINT)
        await until(lambda: len(siblings(parent.pid)) == 1, "the idle process ending")
        parent.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(parent.wait(), PATIENCE_S) == 1


async def test_processes_end_with_a_parent_that_is_killed(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        router_process(valkey_url, processes=2) as (parent, _),
    ):
        pids = siblings(parent.pid)
        parent.kill()
        await until(lambda: not any(map(psutil.pid_exists, pids)), "the processes ending")
