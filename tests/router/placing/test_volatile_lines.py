"""Prompts are compared without first lines that change with every call."""

from typing import Any

from tests.router.world import Answer, Replica, RouterClient, serving

LINE = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch={};"
RULES = "You are an agent. " * 60


def asking(stamp: str) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in (LINE.format(stamp), RULES)]
    messages = [{"role": "user", "content": "What is a tree?"}]
    return {"model": "m", "max_tokens": 5, "system": blocks, "messages": messages}


def matched(answer: Answer) -> int:
    return int(answer.headers["x-pando-matched-tokens"])


async def ask(router: RouterClient, stamp: str) -> Answer:
    return await router.post("/v1/messages", asking(stamp))


async def test_a_call_finds_the_prompt_before_it_and_the_line_is_counted(valkey_url: str) -> None:
    async with Replica(valkey_url, "a"), serving(valkey_url) as router:
        await router.ready("a")
        assert matched(await ask(router, "36ee5")) == 0
        assert matched(await ask(router, "0aaa9")) > 200
        page = (await router.get("/metrics")).body.decode()
        assert 'pando_router_volatile_lines_total{form="claude-code"} 2.0' in page
        path = "/route/explain?path=/v1/messages"
        found = (await router.post(path, asking("12345"))).json
        assert found["candidates"][0]["matched_tokens"] > 200


async def test_the_replica_gets_the_prompt_as_it_was_sent(valkey_url: str) -> None:
    async with Replica(valkey_url, "a") as replica, serving(valkey_url) as router:
        await router.ready("a")
        assert (await ask(router, "36ee5")).status == 200
        assert b"cch=36ee5;" in replica.received[-1].body


async def test_without_the_setting_each_call_has_a_prompt_of_its_own(valkey_url: str) -> None:
    async with Replica(valkey_url, "a"), serving(valkey_url, drop_volatile_lines=False) as router:
        await router.ready("a")
        for stamp in ("36ee5", "0aaa9"):
            assert matched(await ask(router, stamp)) == 0
