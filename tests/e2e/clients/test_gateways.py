"""Other projects' routers in front of two of Pando's workers: all are healthy, and requests flow to
both."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest

from tests.e2e.clients.venvs import python_of
from tests.e2e.up_process import UpProcess
from tests.ports import free_port
from tests.waiting import until_async

pytestmark = [pytest.mark.e2e, pytest.mark.long]  # the first run installs them

HOST = "127.0.0.1"
ENVIRONMENTS = {"smg": "gateways", "sglang-router": "gateways", "vllm-router": "vllm-router"}
COMMANDS = {
    "smg": ("-m", "smg", "launch"),
    "sglang-router": ("-m", "sglang_router.launch_router"),
    "vllm-router": ("-m", "vllm_router.launch_router"),
}


@contextmanager
def gateway(name: str, workers: list[str]) -> Iterator[str]:
    port = free_port(HOST)
    arguments = ["--host", HOST, "--port", str(port), "--prometheus-port", str(free_port(HOST))]
    started = [
        str(python_of(ENVIRONMENTS[name])),
        *COMMANDS[name],
        *arguments,
        "--policy",
        "round_robin",
    ]
    process = subprocess.Popen(
        [*started, "--worker-urls", *workers],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://{HOST}:{port}"
    finally:
        process.kill()
        process.wait()


def finished(up: UpProcess) -> dict[str, float]:
    """Requests that each worker has answered."""
    sample = "pando_worker_finished_requests_total"
    return {name: up.metric(name, sample) for name in up.replicas()}


@pytest.mark.parametrize("name", sorted(COMMANDS))
async def test_requests_flow_through_another_projects_router_to_both_workers(
    name: str, smollm2: UpProcess
) -> None:
    workers = [replica["url"] for replica in smollm2.replicas().values()]
    assert len(workers) == 2
    before = finished(smollm2)
    with gateway(name, workers) as url:
        await until_async(lambda: healthy_workers(url) == 2, f"{name} has two healthy workers")
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            for _ in range(4):
                done = await client.chat.completions.create(
                    model="smollm2",
                    messages=[{"role": "user", "content": "Hi!"}],
                    max_tokens=4,
                )
                assert done.choices[0].message.content
    after = finished(smollm2)
    assert all(after[worker] > before[worker] for worker in after), (before, after)


def healthy_workers(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/workers", timeout=5) as answer:
            return sum(worker["is_healthy"] for worker in json.load(answer)["workers"])
    except (OSError, ValueError):  # it starts yet
        return 0
