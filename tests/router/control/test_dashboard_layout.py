"""Where things stand on the dashboard: an operator's eye finds them, and nothing is cut off."""

from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page

from tests.router.control.browser import in_browser
from tests.router.control.dashboard_world import busy_fleet, comes, opened

pytestmark = in_browser

REPORT_STYLE = Path(__file__).parents[3] / "sim/pando_sim/report/page/style.css"
PHONE = {"width": 375, "height": 740}


async def box(page: Page, selector: str) -> dict[str, float]:
    found: Any = await page.locator(selector).first.bounding_box()
    assert found, selector
    return dict(found)


async def test_the_table_of_requests_says_when_where_how_and_what_was_cached(
    browser: Browser, valkey_url: str
) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, _):
        await page.wait_for_selector("#requests tbody tr:has-text('60 of 256')")
        names = await page.locator("#requests thead th").all_inner_texts()
        wanted = ["time", "status", "replica", "first token", "cached of prompt", "in all", "moves"]
        assert names[: len(wanted)] == wanted


async def test_the_deciding_columns_of_an_explanation_are_not_cut_off_on_a_phone(
    browser: Browser, valkey_url: str
) -> None:
    async with (
        busy_fleet(valkey_url) as router,
        opened(browser, router.url, viewport=PHONE) as (page, _),
    ):
        await page.click("#requests tr:has-text('60 of 256')")
        await page.wait_for_selector("#explanation table")
        said = await page.inner_text("#explanation p")
        assert "tokens cached" in said and ": " in said  # in words, before any table
        for column in (1, 2):
            cell = await box(page, f"#explanation thead th:nth-child({column})")
            assert cell["x"] >= 0 and cell["x"] + cell["width"] <= PHONE["width"]


async def test_tokens_in_and_out_are_charted_and_models_have_rows_by_name(
    browser: Browser, valkey_url: str
) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, _):
        await comes(page, "document.querySelectorAll('#figures figure').length >= 6")
        charts = " ".join(await page.locator("#figures figcaption").all_inner_texts()).lower()
        assert "tokens per second" in charts
        await page.wait_for_selector("#models tbody tr")
        assert await page.locator("#models tbody tr > :first-child").all_inner_texts() == ["m"]
        names = await page.locator("#models thead th").all_inner_texts()
        assert names[-2:] == ["tokens in/s", "tokens out/s"]


async def test_an_error_stands_at_its_button_in_the_colour_of_errors(
    browser: Browser, valkey_url: str
) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, _):
        await comes(page, "!document.getElementById('main').hidden")
        bad = await page.evaluate(
            "() => { const one = document.createElement('i');"
            " one.style.color = 'var(--bad)'; document.body.append(one);"
            " const seen = getComputedStyle(one).color; one.remove(); return seen; }"
        )
        await page.fill("#request-id", "nobodys")
        await page.click("#past-form button")
        await page.fill("#body", "{")
        await page.click("#explain-form button")
        for form, error in (("#past-form", "#past-error"), ("#explain-form", "#body-error")):
            await page.wait_for_selector(f"{form} {error}:not(:empty)")
            button, said = await box(page, f"{form} button"), await box(page, error)
            assert 0 <= said["y"] - button["y"] - button["height"] < 2 * button["height"]
            color = await page.eval_on_selector(error, "one => getComputedStyle(one).color")
            assert color == bad
        assert "nobodys" in await page.inner_text("#past-error")


async def test_cards_of_one_row_have_one_height_and_no_empty_slots(
    browser: Browser, valkey_url: str
) -> None:
    async with busy_fleet(valkey_url) as router, opened(browser, router.url) as (page, _):
        await comes(page, "document.querySelectorAll('#replicas > li').length == 2")
        await comes(page, "document.querySelectorAll('#figures figure').length >= 6")
        for selector in ("#replicas > li", "#figures > *", ".tiles > *"):
            rows: dict[float, set[float]] = {}
            for one in await page.locator(selector).all():
                found: Any = await one.bounding_box()
                rows.setdefault(round(found["y"]), set()).add(round(found["height"]))
            assert all(len(heights) == 1 for heights in rows.values()), (selector, rows)
        shown = await page.locator("#replicas dd:visible").all_inner_texts()
        assert shown and "" not in shown


async def test_pinned_and_cached_have_the_colours_of_the_simulators_report(
    browser: Browser, valkey_url: str
) -> None:
    text = REPORT_STYLE.read_text(encoding="utf-8")
    async with (
        busy_fleet(valkey_url) as router,
        opened(browser, router.url, color_scheme="light") as (page, _),
    ):
        for name in ("--pinned", "--cached"):
            color = await page.evaluate(
                f"getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"
            )
            assert f"{name}: {color};" in text
