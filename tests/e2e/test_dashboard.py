"""The dashboard's numbers with real workers."""

import asyncio
import json

import openai
import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import until

pytestmark = pytest.mark.e2e


async def test_times_of_tokens_come_from_real_streams(
    up: UpProcess, client: openai.AsyncOpenAI
) -> None:
    stream = await client.completions.create(
        model=MODEL, prompt="Count:", max_tokens=50, stream=True, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        pass

    def measured() -> bool:
        points = json.loads(up.get("/dashboard/data"))["points"]
        found = {
            field: [value for value in points[field] if value]
            for field in ("ttft_p50_s", "inter_token_s")
        }
        return all(found.values()) and max(found["inter_token_s"]) < 5

    await asyncio.to_thread(until, measured, "times of first and later tokens")
