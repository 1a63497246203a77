"""The chat page in a browser, with real workers."""

import json

import pytest
from playwright.async_api import Browser, Locator, Page, Request, Route

from tests.e2e.up_process import UpProcess
from tests.router.chat.talking import answered, opened
from tests.router.control.browser import in_browser
from tests.router.world import until

pytestmark = [pytest.mark.e2e, in_browser]

SYSTEMS = (
    "You teach Python's standard library to people who know other languages. " * 6,
    "You are the guide of a forest in which all trees are one living thing. " * 6,
)
"""Longer than a chunk, as shorter prompts leave nothing in the tree to find a replica by."""


async def ask(pane: Locator, question: str) -> None:
    await pane.locator(".message").fill(question)
    await pane.locator(".message").press("Enter")


async def facts(pane: Locator, turn: int) -> tuple[str, int, int]:
    """An answer's replica, its prompt tokens, and how many of them were cached."""
    line = pane.locator("article").nth(turn).locator(".facts")
    replica = await line.locator(".replica").inner_text()
    prompt, cached = (await line.locator(".prompt span").inner_text()).split(" prompt tokens, ")
    return replica, int(prompt), int(cached.split()[0])


async def test_the_second_turn_of_two_conversations_finds_its_replica(
    browser: Browser, up: UpProcess
) -> None:
    async with opened(browser, up.url) as (page, complaints, asked):
        await page.click("#side")
        panes = [page.locator(".pane").nth(number) for number in range(2)]
        for pane, system in zip(panes, SYSTEMS, strict=True):
            await pane.locator(".settings summary").click()
            await pane.locator(".system").fill(system)
            await ask(pane, "What do you do?")
            await stop_late(pane)
        for pane in panes:
            await ask(pane, "And why?")
            await stop_late(pane)
        await answered(page, 4)
        for pane in panes:
            first, second = await facts(pane, 0), await facts(pane, 1)
            assert second[0] == first[0]
            assert second[2] > 64, "the system prompt is cached"
            why = pane.locator("article").nth(1).locator(".why")
            await why.locator("summary span").wait_for()
            assert "the most that any replica held" in await why.locator("summary").inner_text()
        assert not complaints
        assert all(url.startswith((up.url, "data:")) for url in asked)


async def stop_late(pane: Locator) -> None:
    """Stops after a few words, as the small model may generate for long."""
    await pane.locator("article").last.locator(".answer p").last.wait_for()
    await pane.page.keyboard.press("Escape")
    await pane.locator(".composer .send").wait_for()


async def test_stop_frees_the_worker_at_once(browser: Browser, up: UpProcess) -> None:
    async with opened(browser, up.url) as (page, _, __):
        await begin_a_long_answer(page)
        await until(lambda: running(up) == 1, "the request running at a worker")
        before = aborted(up)
        await page.click(".stop")
        await until(lambda: running(up) == 0, "no request running")
        await until(lambda: aborted(up) == before + 1, "the worker having aborted it")


async def begin_a_long_answer(page: Page) -> None:
    """Sends a question with `ignore_eos`, so that the answer is long unless it is stopped."""

    async def with_ignore_eos(route: Route, request: Request) -> None:
        body = json.loads(request.post_data or "") | {"ignore_eos": True}
        await route.continue_(post_data=json.dumps(body))

    await page.route("**/v1/chat/completions", with_ignore_eos)
    await page.locator(".message").fill("Count for me.")
    await page.locator(".message").press("Enter")
    await page.locator(".answer p").first.wait_for()


def running(up: UpProcess) -> int:
    return sum(row["running"] for row in up.replicas().values())


def aborted(up: UpProcess) -> float:
    return sum(up.metric(name, "pando_worker_aborted_requests_total") for name in up.replicas())
