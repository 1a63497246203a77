"""`pando sim calibrate` with a real worker and the shipped model."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from pando_sim.cost import load
from pando_sim.cost.calibration.calibrate import Options, calibrate
from pando_sim.cost.calibration.client import Client, Heard
from pando_sim.cost.calibration.design import Alone, Behind, Limits, Texts
from pando_sim.cost.calibration.errors import UndeterminedError
from pando_sim.cost.calibration.fitting import Fitted
from pando_sim.cost.calibration.observations import Observation
from pando_sim.cost.schema import Quality, RequestCost, StepCost
from tests.worker.server.process.worker_process import WorkerProcess, until

pytestmark = pytest.mark.e2e
STEP = StepCost(step_s=0.01, token_s=0.0, prefill_context_s=0.0, decode_context_s=0.0)
QUALITY = Quality(observations=1, median_error=0.0, largest_error=0.0)
QUICK = ("--repeat", "1", "--longest-prompt", "400", "--most-together", "2")


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess.start(
        stand_in=False, max_total_tokens=4096, threads=1, page_size=8, chunked_prefill_size=512
    ) as worker:
        yield worker


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pando", "sim", "calibrate", *arguments]


def test_a_running_worker_becomes_a_cost_model(worker: WorkerProcess, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    done = subprocess.run(
        command(worker.url, "--output", str(path), *QUICK), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "first token of 64 new tokens" in done.stdout
    model = load(str(path))
    file = model.file
    assert (file.name, file.model) == ("measured", "pando-tiny")
    assert "cores" in file.machine
    assert file.worker is not None
    assert file.worker.capacity_tokens == 4096
    assert (file.worker.page_size, file.worker.chunked_prefill_size) == (8, 512)
    assert 0 < model.step_s(decodes=1, decode_context=64) < 1


async def test_noise_costs_further_rounds_and_at_last_an_error(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(url=worker.url, repeat=1, longest_prompt=128, most_together=1)
    seen: list[list[Observation]] = []
    noisy_rounds = 1

    def fit(observations: list[Observation]) -> Fitted:
        seen.append(observations)
        if len(seen) <= noisy_rounds:
            raise UndeterminedError("too noisy")
        return Fitted(STEP, RequestCost(), np.ones(len(observations)), QUALITY)

    monkeypatch.setattr("pando_sim.cost.calibration.calibrate.fit_model", fit)
    progress: list[tuple[int, int]] = []
    calibration = await calibrate(options, lambda *done: progress.append(done))
    assert calibration.rounds == len(seen) == 2
    assert [one.what for one in seen[0]] == [one.what for one in seen[1]]
    assert progress == sorted(progress)
    assert progress[-1][0] == progress[-1][1]
    async with aiohttp.ClientSession(worker.url) as http:
        await until(lambda: _is_idle(http))
    seen.clear()
    noisy_rounds = 5
    with pytest.raises(UndeterminedError):
        await calibrate(options, lambda *_: None)
    assert len(seen) == 5


async def test_a_worker_that_serves_others_is_not_measured(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "measured.json"
    body = {"model": "pando-tiny", "prompt": "and so", "max_tokens": 1500, "ignore_eos": True}
    async with aiohttp.ClientSession(worker.url) as http:
        request = asyncio.ensure_future(http.post("/v1/completions", json=body | {"stream": True}))
        async with await request as answer:
            await answer.content.readline()
            process = await asyncio.create_subprocess_exec(
                *command(worker.url, "--output", str(path), *QUICK),
                stderr=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
            )
            _, said = await process.communicate()
    assert process.returncode == 1
    assert b"1 requests are already running or waiting at the worker" in said
    assert not path.exists()


async def test_requests_of_others_during_the_measurement_are_noticed(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "measured.json"
    body = {"model": "pando-tiny", "prompt": "somebody else", "max_tokens": 1}
    process = await asyncio.create_subprocess_exec(
        *command(worker.url, "--output", str(path), *QUICK),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with aiohttp.ClientSession(worker.url) as http:
        before = await _prompt_tokens(http)
        await until(lambda: _served_more(http, before))
        async with http.post("/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
    _, said = await process.communicate()
    assert process.returncode == 1, said
    assert b"others used it, which" in b" ".join(said.split())
    assert not path.exists()


async def _prompt_tokens(http: aiohttp.ClientSession) -> int:
    async with http.get("/server_info") as answer:
        stats = (await answer.json())["stats"]
    return int(stats["prompt_tokens_total"]) if stats else 0  # it may have computed nothing yet


async def test_each_request_that_is_alone_finds_a_worker_that_did_nothing_for_the_pause(
    worker: WorkerProcess,
) -> None:
    """Also if it is cached: sent immediately, it would find a warmer worker than a new prompt."""
    heard: list[Heard] = []

    class Listening(Client):
        async def ask(self, *args: Any, **kwargs: Any) -> Heard:
            heard.append(await super().ask(*args, **kwargs))
            return heard[-1]

    async with Listening(worker.url, None, 30.0, pause_s=0.2) as client:
        client.serve_as("pando-tiny")
        limits = Limits(longest_prompt=400, capacity_tokens=4096, most_together=1, chunk_tokens=512)
        await Alone(64).measure(client, Texts(1), limits)
        await Behind(64, 64).measure(client, Texts(2), limits)
    new, cached, prefix, behind = heard
    assert cached.cached_tokens > new.cached_tokens
    assert cached.sent_s - new.token_s[-1] >= 0.2
    assert behind.sent_s - prefix.token_s[-1] >= 0.2


async def test_an_interrupt_ends_it_and_writes_nothing(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "measured.json"
    process = await asyncio.create_subprocess_exec(
        *command(worker.url, "--output", str(path), "--repeat", "50"),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        # Tests in the background may ignore SIGINT, and their children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    async with aiohttp.ClientSession(worker.url) as http:
        before = await _prompt_tokens(http)
        await until(lambda: _served_more(http, before + 1000))
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
        assert process.returncode == 130, said
        assert b"Traceback" not in said
        assert not path.exists()
        await until(lambda: _is_idle(http))


async def _served_more(http: aiohttp.ClientSession, than: int) -> bool:
    return await _prompt_tokens(http) > than


async def _is_idle(http: aiohttp.ClientSession) -> bool:
    async with http.get("/server_info") as answer:
        stats = (await answer.json())["stats"]
    return not (stats["running"] or stats["waiting"])


def test_what_is_no_worker_is_reported_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        command("http://127.0.0.1:1", "--output", str(tmp_path / "x.json")),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("pando sim calibrate: http://127.0.0.1:1 cannot be measured: GET")
    assert done.stderr.count("\n") == 1


async def test_the_worker_says_what_it_runs_on(worker: WorkerProcess) -> None:
    async with aiohttp.ClientSession(worker.url) as http, http.get("/server_info") as answer:
        info = json.loads(await answer.read())
    assert info["machine"].endswith("cores")
