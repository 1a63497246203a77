"""If a worker's engine, a rank or its HTTP process hangs, its streams continue unchanged at the
other
worker, and the worker is back as soon as it works again."""

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import openai
import psutil
import pytest

from tests.e2e.test_migration import MAX_TOKENS, STREAMS, Stream, all_streams, request
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S, command_of, read_each, until_async

pytestmark = [pytest.mark.e2e, pytest.mark.long]

Victim = Callable[[psutil.Process], psutil.Process]
"""Finds the process to stop, from a worker's first process."""


def engine_of(worker: psutil.Process) -> psutil.Process:
    [engine] = worker.children()
    return engine


def rank_of(worker: psutil.Process) -> psutil.Process:
    children = read_each(engine_of(worker).children(), command_of)
    [rank] = [child for child, command in children if "spawn_main" in command]
    return rank


@dataclass(frozen=True, slots=True)
class Case:
    victim: Victim
    ranks: int = 1
    state: str = "stalled"  # of the replica, as the router reports it


CASES = {
    "engine": Case(engine_of),
    "rank": Case(rank_of, ranks=2),
    "server": Case(lambda worker: worker, state="lost"),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def up(case: Case) -> Iterator[UpProcess]:
    environment = {"PANDO_WORKER_TENSOR_PARALLEL_SIZE": str(case.ranks)}
    with UpProcess(environment=environment) as process:
        yield process.wait_ready()


async def test_no_greedy_stream_loses_a_character_where_its_replica_stands_still(
    up: UpProcess, client: openai.AsyncOpenAI, case: Case
) -> None:
    await until_async(
        lambda: [row["state"] for row in up.replicas().values()] == ["ready"] * 2, "both are ready"
    )
    unbroken = [Stream() for _ in range(STREAMS)]
    await all_streams(client, unbroken)
    workers = {replica: up.part(replica) for replica in up.replicas()}
    streams = [Stream() for _ in range(STREAMS)]
    stopped: dict[str, psutil.Process] = {}

    def stop_busiest() -> None:
        begun = Counter(s.replica for s in streams if s.text and not s.finishes)
        ((replica, count),) = begun.most_common(1) or [("", 0)]
        if count >= 3 and not stopped:
            stopped[replica] = case.victim(workers[replica])
            stopped[replica].suspend()

    await all_streams(client, streams, stop_busiest)
    ((replica, process),) = stopped.items()
    for number, (seen, truth) in enumerate(zip(streams, unbroken, strict=True)):
        assert seen.finishes == truth.finishes == ("length",)
        assert seen.completion_tokens == truth.completion_tokens == MAX_TOKENS
        if request(number)["temperature"] == 0:
            assert seen.text == truth.text, f"stream {number} of {seen.replica}"

    assert up.replicas()[replica]["state"] == case.state
    if case.state == "stalled":
        assert status_of(up.replicas()[replica]["url"] + "/readyz") == 503
    others = [Stream() for _ in range(4)]
    await all_streams(client, others)
    assert replica not in {other.replica for other in others}

    process.resume()
    await until_async(lambda: up.replicas()[replica]["state"] == "ready", "it is ready again")
    assert status_of(up.replicas()[replica]["url"] + "/readyz") == 200


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        assert json.loads(error.read())["error"]["code"] == "engine_stalled"
        return error.code
