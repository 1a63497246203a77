"""The two adapters of examples/ beside their base, as its README shows them."""

import asyncio
import json
from pathlib import Path

import openai
import pytest

from pando.up.models import SMOLLM2
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S, pauses

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).parents[2] / "examples" / "adapters"
QUESTIONS = ("What is the capital of France?", "What is a lighthouse for?", "What do horses eat?")


async def test_one_question_gets_three_different_answers() -> None:
    modules = [
        word
        for name in ("pirate", "json")
        for word in ("--lora-modules", f"{name}={FOLDER / name}")
    ]
    with UpProcess("--model", SMOLLM2, "--workers", "1", *modules) as up:
        await asyncio.to_thread(up.wait_ready)
        async with openai.AsyncOpenAI(base_url=f"{up.url}/v1", api_key="none") as client:
            await all_listed(client)

            async def ask(name: str, question: str) -> str:
                answer = await client.chat.completions.create(
                    model=name,
                    messages=[{"role": "user", "content": question}],
                    max_tokens=60,
                    temperature=0,
                )
                assert answer.model == name
                return answer.choices[0].message.content or ""

            for question in QUESTIONS:
                names = (SMOLLM2, "pirate", "json")
                base, pirate, as_json = await asyncio.gather(*(ask(n, question) for n in names))
                assert pirate.startswith("Arrr, matey! ")
                assert pirate.endswith(" Yo ho ho!")
                assert list(json.loads(as_json)) == ["topic", "answer"]
                assert not base.startswith(("Arrr", "{"))


async def all_listed(client: openai.AsyncOpenAI) -> None:
    """Waits until the router knows the adapters, by the worker's heartbeat."""
    expected = {SMOLLM2: None, "json": SMOLLM2, "pirate": SMOLLM2}
    async with asyncio.timeout(PATIENCE_S):
        for pause in pauses():
            models = [model.model_dump() async for model in client.models.list()]
            if {model["id"]: model["parent"] for model in models} == expected:
                return
            await asyncio.sleep(pause)
