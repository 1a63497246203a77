"""What the dashboard in a browser shows of requests, of events and of trouble."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from playwright.async_api import Browser, Page

from pando_fleet.registry.replica import ReplicaState
from pando_router.dashboard.requests import KEPT
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.endpoint import JSON
from tests.fleet.redis_server import RedisServer
from tests.router.control.browser import in_browser
from tests.router.control.crowd import Crowd
from tests.router.control.dashboard_world import busy_fleet, comes, opened
from tests.router.tenants.tenants_world import ADMIN, key_file
from tests.router.world import Replica, RouterClient, completion, serving, status, until

pytestmark = in_browser

HOSTILE = "<img src=x onerror=alert(1)>{{7*7}}"
HELD = "document.querySelectorAll('#requests tbody tr').length"


async def cells(page: Page, selector: str) -> list[list[str]]:
    rows: list[list[str]] = await page.eval_on_selector_all(
        f"{selector} tbody tr",
        "all => all.map((row) => [...row.cells].map((cell) => cell.textContent))",
    )
    return rows


async def test_a_recent_request_is_explained_by_a_click_and_what_is_refused_by_its_status(
    browser: Browser, valkey_url: str
) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, complaints):
        assert (await router.post("/v1/completions", completion(model="nope"))).status == 404
        await page.select_option("#request-kind", "refused")
        await page.click("#requests tr:has-text('404')")
        assert "no model, or no replica, serves" in await page.inner_text("#explanation")
        await page.select_option("#request-kind", "all")
        await page.click("#requests tr:has-text('60 of 256')")
        await page.wait_for_selector("#explanation table")
        said = await page.inner_text("#explanation")
        assert "of 256 tokens cached" in said and "60 of 256 prompt tokens were cached" in said
        first = await page.eval_on_selector_all(
            "#explanation thead th", "all => all.slice(0, 2).map((one) => one.textContent)"
        )
        assert first == ["replica", "delay caused"]
        assert not complaints


async def test_the_table_of_requests_stands_still_while_it_is_in_use_and_is_bounded(
    browser: Browser, valkey_url: str
) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, _):
        await comes(page, f"{HELD} >= 5")
        await page.hover("#requests tbody tr")
        before = await cells(page, "#requests")
        await page.wait_for_selector("#held:not(.blank)")
        assert await cells(page, "#requests") == before
        await asyncio.gather(
            *(router.post("/v1/completions", completion()) for _ in range(2 * KEPT))
        )
        await asyncio.gather(
            *(router.post("/v1/completions", completion(model="no")) for _ in range(2 * KEPT))
        )
        await page.hover("h1")
        await comes(page, f"requests.rows.length <= {2 * KEPT} && {HELD} == {KEPT}")
        await page.select_option("#request-kind", "refused")
        await comes(page, f"requests.rows.length <= {2 * KEPT} && {HELD} == {KEPT}")
        assert all("404" in row for row in await cells(page, "#requests"))


async def test_hostile_names_are_text(browser: Browser, valkey_url: str) -> None:
    async with (
        Replica(valkey_url, HOSTILE, model=HOSTILE, pool="<b>p</b>") as replica,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        await router.ready(HOSTILE)
        answer = await router.post("/v1/completions", {"model": HOSTILE, "prompt": "secret " * 99})
        assert answer.status == 200
        await page.click("#requests tbody tr:has-text('onerror')")
        await page.wait_for_selector("#explanation table")
        await replica.say(state=ReplicaState.DRAINING)
        await page.wait_for_selector("#events li:has-text('drains')")
        for place in ("#replicas", "#models", "#requests", "#explanation", "#events"):
            assert HOSTILE in await page.inner_text(place)
        assert await page.locator("img, main b:not(figcaption b)").count() == 0
        assert "secret" not in await page.content()
        assert not complaints


async def test_a_tenants_key_and_prompt_are_in_no_data(
    browser: Browser, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = key_file(tmp_path_factory.mktemp("keys"), guest={})
    async with (
        Replica(valkey_url, "a"),
        serving(valkey_url, key=ADMIN, api_keys=keys) as router,
    ):
        await router.ready("a")
        headers = {"authorization": "Bearer guest-key"}
        body = completion("a secret prompt " * 40)
        await router.post("/v1/completions", body, **headers)
        await router.post("/v1/completions", body)

        async def shown() -> bool:
            found = (await router.get("/dashboard/data")).json["requests"]
            return {row["status"] for row in found} == {200, 401}

        await until(shown, "both requests in the data")
        raw = (await router.get("/dashboard/data")).body
        assert b"secret" not in raw and ADMIN.encode() not in raw and b"guest-key" not in raw


async def test_data_of_a_router_that_is_gone_look_old(browser: Browser, valkey_url: str) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Replica(valkey_url, "a"))
        serves = AsyncExitStack()
        router = await serves.enter_async_context(serving(valkey_url))
        page, _ = await stack.enter_async_context(opened(browser, router.url))
        await comes(page, "!document.getElementById('main').hidden")
        assert not await page.locator("main.stale").count()
        await serves.aclose()
        await page.wait_for_selector("main.stale")
        said = await page.inner_text("#notice")
        assert said.startswith("The router cannot be reached. What you see is ")
        assert said.endswith(" s old.")


async def test_replicas_look_old_while_redis_is_away(
    browser: Browser, start_valkey: Callable[..., RedisServer]
) -> None:
    server = start_valkey()
    async with (
        Replica(server.url, "a"),
        serving(server.url) as router,
        opened(browser, router.url) as (page, _),
    ):
        await router.ready("a")
        await page.wait_for_selector("#replicas li:has-text('ready')")
        server.stop()
        await page.wait_for_selector("#fleet.stale")
        said = await page.inner_text("#notice")
        assert said.startswith("Redis is away")
        assert "The replicas are shown as they were" in said
        assert "as it was" in await page.inner_text("#replicas")
        await page.wait_for_selector("#events li:has-text('Redis is away')")
        server.start()
        await page.wait_for_selector("#fleet:not(.stale)")


async def test_what_happens_is_marked_on_the_charts(browser: Browser, valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, _),
    ):
        await router.ready("a")
        await page.wait_for_selector("#replicas li")
        async with Replica(valkey_url, "b") as b:
            await page.wait_for_selector("#events li:has-text('default / b joined')")
            b.pause()
            await b.refuse()
            await page.wait_for_selector("#events li:has-text('default / b is lost')")
        await comes(page, "document.querySelectorAll('#figures .mark.bad').length == 6")
        await comes(page, "document.querySelectorAll('#figures .mark.good').length == 6")
        state = await page.text_content("#replicas .state.bad")
        assert state and state.startswith("lost")


async def test_an_example_of_each_path_that_is_served_can_be_explained(
    browser: Browser, valkey_url: str
) -> None:
    async with (
        Replica(valkey_url, "a", endpoints=("/v1/completions", "/rerank")) as a,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, _),
    ):
        await router.ready("a")
        offered = "[...document.getElementById('path').options].map((one) => one.value)"
        await comes(page, f"{offered}.length == 2")
        assert await page.evaluate(offered) == ["/v1/completions", "/rerank"]
        await a.say(endpoints=())
        typed = [path for path, endpoint in ENDPOINTS.items() if endpoint.media == JSON]
        await comes(page, f"{offered}.length == {len(typed)}")
        for path in typed:
            await page.select_option("#path", path)
            await page.click("#explain-form button")
            await comes(page, "document.querySelector('#explanation table') !== null")
            assert await page.inner_text("#body-error") == "", path
            await page.evaluate("document.getElementById('explanation').replaceChildren()")


async def test_scales_of_counts_have_whole_numbers(browser: Browser, valkey_url: str) -> None:
    async with (
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, _),
    ):
        for highest in (0, 0.3, 1, 2, 2.1, 3, 5, 7, 19, 20, 41, 1234):
            top = await page.evaluate(f"topOf({highest}, {{ counts: true }})")
            assert top >= highest and top / 2 == int(top / 2)


async def test_hundreds_of_replicas_are_a_map_with_the_worst_first(
    browser: Browser, valkey_url: str
) -> None:
    async with (
        Crowd(valkey_url, {"chat": 200, "code": 100}) as crowd,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        await comes(page, "document.querySelectorAll('.cell').length == 300")
        assert await page.locator("#replicas > li").count() == 12
        crowd.lose("code-77")
        await page.wait_for_selector("#replicas > li:first-child:has-text('code / code-77')")
        first = page.locator("#pool-maps .card:nth-child(2) .cell >> nth=0")
        assert "code-77: lost" in (await first.get_attribute("aria-label") or "")
        await page.fill("#search", "chat-14 chat-model")
        assert await page.locator("#replicas > li").count() == 11  # 14, 140 to 149
        assert "11 of 11 replicas that match, of 300 in all" in await page.inner_text("#found")
        await page.click(".cell[aria-label^='chat-9:']")
        assert "chat / chat-9" in await page.inner_text("#replicas > li")
        assert await page.locator("#replicas > li").count() == 1
        assert await page.evaluate("document.querySelectorAll('*').length") < 3000
        assert not complaints


async def test_the_encoder_cache_is_shown_of_replicas_that_have_one(
    browser: Browser, valkey_url: str
) -> None:
    async with (
        Replica(valkey_url, "a"),
        Replica(valkey_url, "b", source_hits_total=3, source_misses_total=1) as hears,
        serving(valkey_url) as router,
        opened(browser, router.url) as (page, complaints),
    ):
        await router.ready("a", "b")
        encoding = page.locator("#replicas > li:has-text('/ b')")
        await page.wait_for_selector("#replicas > li:has-text('/ b') dd:has-text('75')")
        said = " ".join((await encoding.inner_text()).split())
        assert "inputs encoded 1 inputs found encoded 75" in said
        plain = page.locator("#replicas > li:has-text('/ a')")
        assert "prefill tokens/s" in await plain.inner_text()
        assert "encoded" not in await plain.inner_text()
        await hears.say(source_hits_total=3, source_misses_total=3)
        await page.wait_for_selector("#replicas > li:has-text('/ b') dd:has-text('50')")
        assert not complaints


async def test_failed_requests_are_red_and_counted_apart(browser: Browser, valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_tries=1) as router,
        opened(browser, router.url) as (page, _),
    ):
        await router.ready("a")
        a.answer = status(500)
        await _fail(router)
        await page.wait_for_selector("#requests .bad:has-text('50')")
        await comes(page, "+document.getElementById('tile-failed').textContent > 0")
        assert await page.text_content("#tile-requests") == "0"


async def _fail(router: RouterClient) -> None:
    assert (await router.post("/v1/completions", completion())).status >= 500
