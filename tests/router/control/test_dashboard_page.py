"""The dashboard in a browser, on a router with replicas on real sockets."""

import json
from pathlib import Path

from playwright.async_api import Browser

from pando_fleet.records.decisions import PastDecision, PastDecisions
from pando_fleet.redis.client import connect
from tests.router.control.browser import in_browser
from tests.router.control.dashboard_world import LINES, PROMPT, busy_fleet, comes, opened
from tests.router.tenants.tenants_world import ADMIN, key_file
from tests.router.world import completion

pytestmark = in_browser


async def test_charts_and_replicas_live(browser: Browser, valkey_url: str) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, complaints):
        await comes(page, f"{LINES} >= 6")
        assert await page.text_content("#tile-ready") == "2 of 2"
        await comes(page, "document.getElementById('tile-hits').textContent == '23 %'")
        widths = await page.eval_on_selector_all(
            "#replicas rect", "rects => rects.map((rect) => rect.getAttribute('width'))"
        )
        assert widths == ["20", "50", "20", "50"]
        labels = await page.eval_on_selector_all(
            "svg[role=img]", "all => all.map((one) => one.getAttribute('aria-label'))"
        )
        assert len(labels) == 8
        assert "KV memory of a: 20K pinned, 50K cached, 30K free tokens" in labels
        before = await page.evaluate("points.at.length")
        await comes(page, f"points.at.length > {before}")
        assert not complaints


async def test_scaling_decisions_are_a_table_that_is_absent_without_any(
    browser: Browser, valkey_url: str
) -> None:
    redis = connect(valkey_url)
    past = PastDecisions(redis)
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, complaints):
        await comes(page, "!document.getElementById('main').hidden")
        assert not await page.is_visible("#decisions-section")
        old = PastDecision(at_s=1.0, before=1, after=2, reason="pressure <b>0.9</b>")
        new = PastDecision(at_s=2.0, before=2, after=1, reason="pressure 0.1")
        await past.put("default", [new, old])
        await page.wait_for_selector("#decisions-section", state="visible")
        rows = await page.eval_on_selector_all(
            "#decisions tbody tr",
            "all => all.map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))",
        )
        assert rows == [
            ["default", "2 to 1", "pressure 0.1"],
            ["default", "1 to 2", "pressure <b>0.9</b>"],
        ]
        assert not complaints
    await redis.aclose()


async def test_it_is_dark_where_the_system_is(browser: Browser, valkey_url: str) -> None:
    light: dict[str, list[float]] = {}
    async with busy_fleet(valkey_url) as router:
        for scheme in ("light", "dark"):
            async with opened(browser, router.url, color_scheme=scheme) as (page, _):
                await page.wait_for_selector("#main:not([hidden])")
                light[scheme] = [
                    await page.evaluate(
                        "(at) => { const c = getComputedStyle(document.body)[at].match(/\\d+/g);"
                        " return (+c[0] + +c[1] + +c[2]) / 765; }",
                        style,
                    )
                    for style in ("backgroundColor", "color")
                ]
    (page_light, ink_light), (page_dark, ink_dark) = light["light"], light["dark"]
    assert page_light > 0.9 > 0.2 > ink_light
    assert page_dark < 0.2 < 0.8 < ink_dark


async def test_a_phone_shows_it_without_scrolling_sideways_or_jumping(
    browser: Browser, valkey_url: str
) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    async with busy_fleet(valkey_url) as router, opened(browser, router.url, **phone) as (page, _):
        await comes(page, f"{LINES} >= 6")
        await page.click("text=Numbers >> nth=0")
        await page.click("#explain-form button")
        await page.wait_for_selector("#explanation p")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        assert await page.evaluate("window.shifted") < 0.02


async def test_it_is_used_by_keyboard_alone(browser: Browser, valkey_url: str) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, complaints):
        await comes(page, f"{LINES} >= 6")
        order = []
        for _ in range(17):
            await page.keyboard.press("Tab")
            order.append(
                await page.evaluate(
                    "[document.activeElement.id || document.activeElement.textContent,"
                    " getComputedStyle(document.activeElement).outlineStyle].join('|')"
                )
            )
        names = [entry.split("|")[0] for entry in order]
        names = ["<the latest request>" if "/v1/completions" in name else name for name in names]
        assert names == [
            "Skip to the charts",
            *["Numbers"] * 6,
            "events",
            "models",
            "request-kind",
            "<the latest request>",
            "explanation",
            "request-id",
            "Explain",
            "path",
            "body",
            "Explain",
        ]
        assert all(entry.endswith("|solid") for entry in order)
        await page.focus("summary")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("details[open] tbody tr")
        answer = await router.post("/v1/completions", completion(PROMPT))
        await page.focus("#request-id")
        await page.keyboard.type(answer.headers["x-request-id"])
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#explanation table")
        said = await page.inner_text("#explanation")
        assert f"It went to {answer.replica}" in said
        assert "60 of 256 prompt tokens were cached" in said
        assert not complaints


async def test_a_request_is_explained_before_it_is_sent(browser: Browser, valkey_url: str) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, _):
        await page.select_option("#path", "/v1/completions")
        await page.click("#explain-form button")
        await page.wait_for_selector("#explanation table")
        assert "It would go to" in await page.inner_text("#explanation")
        assert await page.locator("#explanation tbody tr").count() == 2
        await page.fill("#body", '{"model": "nobody\'s", "prompt": "<b>x</b>"}')
        await page.click("#explain-form button")
        await comes(page, "document.getElementById('body-error').innerText.includes(\"nobody's\")")
        assert await page.text_content("#explanation") == ""
        await page.select_option("#path", "/v1/chat/completions")
        image = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
        await page.fill(
            "#body", json.dumps({"model": "m", "messages": [{"role": "user", "content": [image]}]})
        )
        await page.click("#explain-form button")
        await comes(
            page, "document.getElementById('explanation').innerText.includes('image, 576 tokens')"
        )


async def test_an_admins_key_is_asked_for_and_kept_in_the_tab_alone(
    browser: Browser, valkey_url: str, tmp_path: Path
) -> None:
    keys = key_file(tmp_path)
    async with (
        busy_fleet(valkey_url, key=ADMIN, api_keys=keys) as router,
        opened(browser, router.url) as (page, _),
    ):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.wait_for_selector("#key-form:not([hidden])")
        assert await page.evaluate("document.activeElement.id") == "key"
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#key-error:not(:empty)")
        await page.keyboard.type(ADMIN)
        await page.keyboard.press("Enter")
        await comes(page, f"{LINES} >= 4")
        assert await page.evaluate("Object.values(sessionStorage)") == [ADMIN]
        assert await page.evaluate("localStorage.length + document.cookie.length") == 0
        assert not [url for url in asked if ADMIN in url]
        assert ADMIN not in await page.content()
