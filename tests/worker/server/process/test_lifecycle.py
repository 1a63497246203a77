"""Starting, draining and dying, each with a separate worker."""

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.waiting import PATIENCE_S
from tests.worker.server.process.worker_process import MODEL, WorkerProcess, until
from tests.worker.server.stand_in import BROKEN_LOAD, LONG_LOAD, Trick

pytestmark = pytest.mark.e2e

SLOW = {
    "text": "a b c d",
    "stream": True,
    "sampling_params": {"seed": Trick.SLOW, "max_new_tokens": 60},
}


async def error_of(answer: aiohttp.ClientResponse) -> tuple[int, str]:
    return answer.status, (await answer.json())["error"]["code"]


async def test_drain_finishes_what_runs_and_refuses_what_comes() -> None:
    with WorkerProcess.start() as worker:
        children = worker.children()
        async with aiohttp.ClientSession(worker.url) as http:
            async with http.post("/generate", json=SLOW) as running:
                await running.content.readline()
                worker.signal(signal.SIGTERM)
                await asyncio.to_thread(worker.logged, "draining")

                async with http.get("/readyz") as answer:
                    assert await error_of(answer) == (503, "draining")
                async with http.get("/healthz") as answer:
                    assert answer.status == 200
                async with http.post("/generate", json=SLOW) as answer:
                    assert await error_of(answer) == (503, "draining")
                    assert answer.headers["retry-after"] == "1"
                    assert answer.headers["connection"] == "close"

                *_, last, done = (await running.text()).strip().split("\n\n")
                assert done == "data: [DONE]"
                assert json.loads(last[6:])["meta_info"]["completion_tokens"] == 60
            assert await worker.exit_code() == 0
        assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]


async def test_drain_gives_up_after_its_time_with_an_error_event() -> None:
    with WorkerProcess.start(drain_seconds=0.1) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            queued = {"text": "x", "sampling_params": {"seed": Trick.QUEUED}}
            waiting = asyncio.ensure_future(http.post("/generate", json=queued))
            async with http.post("/generate", json=SLOW) as running:
                await running.content.readline()
                worker.signal(signal.SIGINT)
                last = (await running.text()).strip().split("\n\n")[-1]
                assert json.loads(last[6:])["error"]["code"] == "engine_gone"
            assert await error_of(await waiting) == (503, "engine_gone")
        assert await worker.exit_code() == 0


async def test_second_signal_does_not_wait() -> None:
    with WorkerProcess.start(drain_seconds=600) as worker:
        children = worker.children()
        async with (
            aiohttp.ClientSession(worker.url) as http,
            http.post("/generate", json=SLOW) as running,
        ):
            await running.content.readline()
            worker.signal(signal.SIGTERM)
            await asyncio.to_thread(worker.logged, "draining")
            worker.signal(signal.SIGTERM)
            last = (await running.text()).strip().split("\n\n")[-1]
            assert json.loads(last[6:])["error"]["code"] == "engine_gone"
            assert await worker.exit_code() == 0
        assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]


async def test_death_of_the_scheduler_ends_requests_clearly_and_the_process() -> None:
    with WorkerProcess.start() as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            queued = {"text": "x", "sampling_params": {"seed": Trick.QUEUED}}
            waiting = asyncio.ensure_future(http.post("/generate", json=queued))
            fatal = SLOW | {"sampling_params": {"seed": Trick.DIES}}
            async with http.post("/generate", json=fatal) as running:
                last = (await running.text()).strip().split("\n\n")[-1]
                assert json.loads(last.removeprefix("data: "))["error"]["code"] == "engine_gone"
            answer = await waiting
            assert answer.headers["retry-after"] == "1"
            assert await error_of(answer) == (503, "engine_gone")
        assert await worker.exit_code() == 1
        worker.logged(r"scheduler process ended \(exit code 3\)")


async def test_nothing_is_served_before_the_model_is_loaded_and_a_signal_ends_the_wait() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with WorkerProcess.start(ready=False, pool=LONG_LOAD, port=port) as worker:
        await asyncio.to_thread(worker.logged, "listening at")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
            async with http.get("/healthz") as answer:
                assert answer.status == 200
            async with http.get("/readyz") as answer:
                assert await error_of(answer) == (503, "model_loading")
            async with http.post("/generate", json=SLOW) as answer:
                assert await error_of(answer) == (503, "model_loading")

            async def says_how_far() -> bool:
                async with http.get("/readyz") as answer:
                    error = (await answer.json())["error"]
                return str(error["message"]).endswith("still loading: weights, 50 %")

            await until(says_how_far)
        worker.signal(signal.SIGTERM)
        assert await worker.exit_code() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "/nowhere/at-all"}, r"cannot serve this model: there is no directory"),
        ({"host": "203.0.113.1"}, r"cannot start: cannot listen on 203.0.113.1"),
        ({"pool": BROKEN_LOAD}, r"scheduler process ended \(exit code 1\)"),
    ],
    ids=["model", "address", "load"],
)
async def test_what_cannot_start_says_why_and_exits_1(
    settings: dict[str, Any], message: str
) -> None:
    with WorkerProcess.start(ready=False, **settings) as worker:
        await asyncio.to_thread(worker.logged, message)
        assert await worker.exit_code() == 1
        assert "Traceback" not in worker.log


async def test_a_model_with_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(MODEL / name)
    (tmp_path / "tokenizer.json").write_text("{}")
    with WorkerProcess.start(ready=False, model=str(tmp_path)) as worker:
        await asyncio.to_thread(worker.logged, "cannot load the tokenizer")
        assert await worker.exit_code() == 1
