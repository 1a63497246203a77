"""What a client's headers say reaches the worker, through the router."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from pando_router.api_keys.keyring import digest_of
from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import until_async

pytestmark = [pytest.mark.e2e, pytest.mark.long]

WAITING = "pando_worker_waiting_requests"


@pytest.fixture(scope="module")
def up() -> Iterator[UpProcess]:
    """A worker that runs one request at a time."""
    environment = {
        "PANDO_ROUTER_ALLOW_PRIORITY_HEADER": "true",
        "PANDO_WORKER_SCHEDULE_POLICY": "priority",
        "PANDO_WORKER_MAX_RUNNING_REQUESTS": "1",
    }
    with UpProcess("--workers", "1", environment=environment) as process:
        yield process.wait_ready()


async def say(client: openai.AsyncOpenAI, max_tokens: int, **headers: str) -> str:
    """The answer's id."""
    done = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What does this function do?"}],
        max_tokens=max_tokens,
        extra_body={"ignore_eos": True},
        extra_headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    return done.id


async def test_a_priority_orders_the_workers_queue(
    up: UpProcess, client: openai.AsyncOpenAI
) -> None:
    [worker] = up.replicas()
    ended: list[str] = []

    async def queued(priority: str) -> None:
        await say(client, 1, x_priority=priority)
        ended.append(priority)

    first = asyncio.create_task(say(client, 1500))
    await until_async(
        lambda: up.metric(worker, "pando_worker_running_requests") == 1, "the first runs"
    )
    others: list[asyncio.Task[None]] = []

    def all_wait() -> bool:
        return up.metric(worker, WAITING) == len(others)

    for priority in ("5", "0", "-5"):
        others.append(asyncio.create_task(queued(priority)))
        await until_async(all_wait, "it waits")
    await asyncio.gather(first, *others)
    assert ended == ["-5", "0", "5"]


async def test_a_request_id_is_the_workers_too(client: openai.AsyncOpenAI) -> None:
    assert await say(client, 1, x_request_id="from-a-client") == "chatcmpl-from-a-client"


async def test_a_deadline_ends_the_request_at_the_worker(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as late:
        await say(client, 4000, x_request_timeout_ms="500")
    assert (late.value.status_code, late.value.code) == (504, "deadline_exceeded")


async def test_a_keys_tenant_is_the_workers_too(tmp_path: Path) -> None:
    """The worker keeps a response for the tenant whose key the router saw, whatever tenant the
    client names: asked directly, it knows the response of this tenant alone."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"tenants: {{mine: {{keys: [{{sha256: {digest_of('secret')}}}]}}}}")
    environment = {"PANDO_ROUTER_API_KEYS": str(keys)}
    with UpProcess("--workers", "1", environment=environment) as up:
        log = "\n".join(line["event"] for line in up.wait_ready().log)
        found = re.search(r"ready at (http://\S+)", log)
        assert found, log
        async with (
            openai.AsyncOpenAI(base_url=f"{up.url}/v1", api_key="secret") as client,
            openai.AsyncOpenAI(base_url=f"{found[1]}/v1", api_key="none") as worker,
        ):
            named = {"x-pando-tenant": "yours"}
            made = await client.responses.create(
                model=MODEL, input="Hi!", max_output_tokens=1, extra_headers=named
            )
            mine = await worker.responses.retrieve(
                made.id, extra_headers={"x-pando-tenant": "mine"}
            )
            assert mine == made
            for other in (named, {}):
                with pytest.raises(openai.NotFoundError):
                    await worker.responses.retrieve(made.id, extra_headers=other)
