"""The model does not read first lines that agents write anew for every call."""

from typing import Any

import aiohttp
import pytest

from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess

LINE = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={};"
RULES = "You are an agent.\nUse tools."
QUESTION = {"role": "user", "content": "What is a tree?"}


def blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


async def read(http: aiohttp.ClientSession, path: str, **fields: Any) -> int:
    """The prompt tokens of a request."""
    body = {"model": MODEL_NAME, "max_tokens": 1, **fields}
    async with http.post(path, json=body) as answer:
        found = await answer.json()
        assert answer.status == 200, found
        if path.endswith("count_tokens"):
            return int(found["input_tokens"])
        return int(found["usage"]["prompt_tokens"])


async def counted(http: aiohttp.ClientSession, system: Any) -> int:
    return await read(http, "/v1/messages/count_tokens", messages=[QUESTION], system=system)


async def asked(http: aiohttp.ClientSession, role: str, content: Any) -> int:
    messages = [{"role": role, "content": content}, QUESTION]
    return await read(http, "/v1/chat/completions", messages=messages)


async def test_every_api_leaves_the_line_out(http: aiohttp.ClientSession) -> None:
    before = await lines_left_out(http)
    rules, line = await counted(http, RULES), LINE.format("36ee5")
    assert await counted(http, blocks(line, RULES)) == rules
    assert await counted(http, f"{line}\n{RULES}") == rules
    for role in ("system", "developer"):
        assert await asked(http, role, blocks(line, RULES)) == await asked(http, role, RULES)
    assert await lines_left_out(http) == before + 4


async def test_the_same_line_elsewhere_is_read(http: aiohttp.ClientSession) -> None:
    line = LINE.format("36ee5")
    assert await counted(http, f"{RULES}\n{line}") > await counted(http, RULES) + 20
    question = await read(http, "/v1/chat/completions", messages=[QUESTION])
    said = [{"role": "user", "content": f"{line}\nWhat is a tree?"}]
    assert await read(http, "/v1/chat/completions", messages=said) > question + 20


@pytest.mark.e2e
async def test_without_the_setting_it_is_read() -> None:
    with WorkerProcess.start(drop_volatile_lines=False) as worker:
        async with aiohttp.ClientSession(worker.url) as http:
            stamped = await counted(http, blocks(LINE.format("36ee5"), RULES))
            assert stamped > await counted(http, RULES) + 20


async def lines_left_out(http: aiohttp.ClientSession) -> float:
    async with http.get("/metrics") as answer:
        page = await answer.text()
    name = 'pando_worker_volatile_lines_total{form="claude-code"} '
    return sum(
        float(line.removeprefix(name)) for line in page.splitlines() if line.startswith(name)
    )
