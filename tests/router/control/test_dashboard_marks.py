"""Marks and words on the dashboard's charts, in a browser."""

import time

import pytest
from playwright.async_api import Browser

from pando_fleet.records.decisions import PastDecision, PastDecisions
from pando_fleet.redis.client import connect
from pando_fleet.registry.replica import ReplicaState
from tests.router.control.browser import in_browser
from tests.router.control.dashboard_world import PROMPT, comes, opened
from tests.router.migration.test_migration_proxy import CHAT, both, text_of
from tests.router.scripted_engine import Engine
from tests.router.world import Replica, cached, completion, serving, until

pytestmark = in_browser

MARKS = "document.querySelectorAll('#figures .mark').length"


async def test_a_stream_that_migrates_is_marked_on_every_chart(
    browser: Browser, valkey_url: str
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        await router.ready("a", "b")
        await comes(page, "!document.getElementById('main').hidden")
        before = await page.evaluate(MARKS)
        both(Engine(CHAT), a, b, 700)
        await text_of(router)
        await page.wait_for_selector("#events li:has-text('1 stream of default / ')")
        listed = await page.inner_text("#events")
        assert "went on elsewhere" in listed
        await comes(page, f"{MARKS} >= {before} + 6")
        assert not complaints


async def test_a_scaling_decision_is_marked_on_every_chart_with_its_reason(
    browser: Browser, valkey_url: str
) -> None:
    redis = connect(valkey_url)
    async with (
        Replica(valkey_url, "a"),
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        await router.ready("a")
        await comes(page, "points !== null && points.at.length > 1")
        # Of a second in which nothing else happened, or the mark would be shared.
        decision = PastDecision(at_s=time.time() - 20, before=1, after=3, reason="pressure 0.93")
        before = await page.evaluate(MARKS)
        await PastDecisions(redis).put("default", [decision])
        said = "default is to have 3 replicas instead of 1: pressure 0.93"
        await page.wait_for_selector(f"#events li:has-text('{said}')")
        await comes(page, f"{MARKS} == {before} + 6")
        assert not complaints
    await redis.aclose()


@pytest.mark.parametrize(
    ("prompt", "cached_tokens", "said"),
    [
        (PROMPT, 256, "Replicas had what the shared tree expected."),
        (PROMPT, 60, "Delivered is lower: replicas had evicted what the tree expected."),
        ("short", 200, "Delivered is higher: the tree counts whole chunks of 256 bytes"),
    ],
)
async def test_why_predicted_differs_from_delivered_is_said_below_the_chart(
    browser: Browser, valkey_url: str, prompt: str, cached_tokens: int, said: str
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        note = "document.querySelector('#figures figure .note').textContent"
        await comes(page, f"points !== null && {note} == 'No prompts in the last seconds.'")
        a.answer = cached(256, 256)
        await router.post("/v1/completions", completion(prompt))  # from now on it is in the tree
        await router.ready("a")
        await comes(page, "points.delivered.at(-1) !== null")
        a.answer = cached(cached_tokens, 256)

        async def words() -> bool:
            await router.post("/v1/completions", completion(prompt))
            return said in str(await page.evaluate(note))

        await until(words, said)
        assert not complaints


async def test_a_card_of_a_replica_that_starts_says_what_it_does(
    browser: Browser, valkey_url: str
) -> None:
    starting = Replica(valkey_url, "a", stage="weights", stage_done=0.45)
    starting.state = ReplicaState.STARTING
    async with (
        starting,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        await page.wait_for_selector("#replicas .state:has-text('starting: weights 45 %')")
        assert not complaints
