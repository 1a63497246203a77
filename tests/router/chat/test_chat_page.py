"""The chat page in a browser."""

from pathlib import Path

from playwright.async_api import Browser

from tests.router.chat.talking import PHONE, Speech, answered, opened, received, say, talking
from tests.router.control.browser import in_browser, tab
from tests.router.tenants.tenants_world import ADMIN, key_file
from tests.router.world import fleet, never, status, until

pytestmark = in_browser

BRIGHTNESS = """(node) => ["backgroundColor", "color"].map((style) => {
  for (let at = node; at; at = at.parentElement) {
    const [red, green, blue, alpha] = getComputedStyle(at)[style].match(/[\\d.]+/g).map(Number);
    if (alpha !== 0) return (red + green + blue) / 765;
  }
})"""
"""The brightness of a node's background and of its text, from 0 to 1."""
FOCUSED = "(({ id, className, innerText }) => id || className || innerText)(document.activeElement)"


async def test_an_answer_is_shown_while_it_comes_and_then_what_is_known_of_it(
    browser: Browser,
    valkey_url: str,
) -> None:
    async with talking(browser, valkey_url) as (page, _, a, complaints):
        a.answer = speech = Speech("A grove", complete=False)
        speech.cached_tokens = 4
        await say(page, "What is a grove?")
        await page.wait_for_selector(".answer p:has-text('A grove')")
        assert await page.is_visible(".stop")
        assert await page.text_content(".foot") == "a is answering"
        speech.say(" is a small wood.")
        speech.end()
        await answered(page)
        assert await page.inner_text(".answer") == "A grove is a small wood."
        facts = await page.inner_text(".facts")
        for fact in (
            "a",
            "10 prompt tokens, 4 cached",
            "2\xa0tokens",
            "first token after",
            "\xa0tokens/s",
        ):
            assert fact in facts
        await page.wait_for_selector(".why summary:has-text('shorter than a chunk')")
        await page.click(".why summary")
        assert "It went to a" in await page.inner_text(".explanation")
        body = received(a)
        assert body["messages"] == [{"role": "user", "content": "What is a grove?"}]
        assert body["model"] == "m"
        assert "temperature" not in body
        assert not complaints


async def test_stop_ends_the_request_at_the_replica_and_the_conversation_goes_on(
    browser: Browser,
    valkey_url: str,
) -> None:
    async with talking(browser, valkey_url) as (page, _, a, complaints):
        a.answer = Speech("Once upon a time", complete=False)
        await say(page, "Tell a story.")
        await page.wait_for_selector(".answer p:has-text('Once')")
        await page.click(".stop")
        await until(lambda: a.cancelled == 1, "the request being ended at the replica")
        await page.wait_for_selector(".remark:has-text('Stopped.')")
        assert await page.is_visible(".send")
        a.answer = Speech("The end.")
        await say(page, "Go on.")
        await answered(page, 2)
        assert [message["content"] for message in received(a)["messages"]] == [
            "Tell a story.",
            "Once upon a time",
            "Go on.",
        ]
        assert not complaints


async def test_it_is_used_by_keyboard_alone(browser: Browser, valkey_url: str) -> None:
    async with talking(browser, valkey_url) as (page, _, a, complaints):
        a.answer = Speech("Yes.")
        assert await page.evaluate(FOCUSED) == "message"
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two")
        assert not a.received
        await page.keyboard.press("Enter")
        await answered(page)
        assert received(a)["messages"][0]["content"] == "one\ntwo"
        assert await page.input_value(".message") == ""
        a.answer = never
        await page.keyboard.type("three")
        await page.keyboard.press("Enter")
        await until(lambda: len(a.received) == 2, "the second question")
        await page.keyboard.press("Escape")
        await until(lambda: a.cancelled == 1, "the request being ended")
        await page.wait_for_selector(".remark")
        await page.focus(".skip")
        order = []
        for _ in range(11):
            await page.keyboard.press("Tab")
            order.append((await page.evaluate(FOCUSED)).split("\n")[0])
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert await page.evaluate(outline) == "solid", order
        summaries = [order.pop(7), order.pop(5)]
        assert [summary.split()[0] for summary in summaries] == ["Why", "Settings"]
        assert order == [
            *("Dashboard", "new", "tab", "close", "side", "log", "again small", "message", "send")
        ]
        assert not complaints


async def test_settings_are_each_conversation_s_own(browser: Browser, valkey_url: str) -> None:
    async with talking(browser, valkey_url, settings={"aliases": {"smart": "m"}}) as (
        page,
        _,
        a,
        __,
    ):
        a.answer = Speech("Aye.")
        await page.click(".settings summary")
        await page.select_option(".model", "smart")
        await page.fill(".system", "You are a pirate.")
        await page.fill(".temperature", "0.5")
        await say(page, "Hello?")
        await answered(page)
        body = received(a)
        assert body["temperature"] == 0.5
        assert body["messages"][0] == {"role": "system", "content": "You are a pirate."}
        assert "smart · temperature 0.5 · “You are a pirate.”" in await page.inner_text(".values")
        await page.click("#new")
        assert "pirate" not in await page.inner_text(".pane")


async def test_conversations_stay_in_the_tab_over_a_reload_and_no_longer(
    browser: Browser, valkey_url: str
) -> None:
    async with talking(browser, valkey_url) as (page, router, a, _):
        a.answer = Speech("**First** answer.")
        await say(page, "First question")
        await answered(page)
        await page.click("#new")
        a.answer = Speech("Second answer.")
        await say(page, "Second question")
        await answered(page)
        await page.reload()
        await page.wait_for_selector(".answer:has-text('Second answer.')")
        await page.click(".tab:has-text('First question')")
        assert await page.inner_text(".answer strong") == "First"
        await page.click(".why summary")  # requested again, as a reload keeps no explanation
        await page.wait_for_selector(".explanation:has-text('It went to a')")
        await page.click("[aria-label='Close: Second question']")
        assert await page.locator(".tab").count() == 1
        async with tab(browser) as other:
            await other.goto(f"{router.url}/chat")
            await other.wait_for_selector(".message")
            assert await other.inner_text(".tab") == "New conversation"


async def test_a_tab_keeps_a_bounded_number_of_conversations(
    browser: Browser, valkey_url: str
) -> None:
    async with talking(browser, valkey_url) as (page, _, __, ___):
        for _count in range(11):
            await page.click("#new")
        assert await page.locator(".tab").count() == 12
        assert await page.is_disabled("#new")
        await page.locator("#tabs .close").first.click()
        assert await page.is_enabled("#new")


async def test_two_conversations_are_side_by_side(browser: Browser, valkey_url: str) -> None:
    async with talking(browser, valkey_url) as (page, _, a, complaints):
        await page.click("#side")
        panes = page.locator(".pane")
        assert await panes.count() == 2
        for number, text in enumerate(("left", "right")):
            a.answer = Speech(f"It is {text}.")
            await panes.nth(number).locator(".message").fill(f"{text}?")
            await panes.nth(number).locator(".message").press("Enter")
            await panes.nth(number).locator(f".answer:has-text('It is {text}.')").wait_for()
        boxes = [await panes.nth(number).bounding_box() for number in range(2)]
        assert boxes[0] and boxes[1]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        await page.click("#side")
        assert await panes.count() == 1
        assert await page.inner_text(".answer") == "It is right."  # the last used one
        assert not complaints


async def test_an_answer_goes_on_while_another_conversation_is_shown(
    browser: Browser, valkey_url: str
) -> None:
    async with talking(browser, valkey_url) as (page, _, a, __):
        a.answer = speech = Speech("Still", complete=False)
        await say(page, "Long?")
        await page.wait_for_selector(".answer p:has-text('Still')")
        await page.click("#new")
        speech.say(" here.")
        speech.end()
        await page.click(".tab:has-text('Long?')")
        await answered(page)
        assert await page.inner_text(".answer") == "Still here."


async def test_errors_stand_at_the_answer_and_the_text_can_be_sent_again(
    browser: Browser, valkey_url: str
) -> None:
    async with talking(browser, valkey_url, settings={"max_tries": 1}) as (page, _, a, __):
        a.answer = status(429, **{"retry-after": "7"})
        await say(page, "Are you there?")
        error = page.locator(".error")
        await error.wait_for()
        assert "Too many requests (429)" in await error.inner_text()
        assert "The router asks to wait 7 s." in await error.inner_text()
        for code, title in ((400, "Refused (400)"), (500, "No answer (500)")):
            a.answer = status(code)
            await page.click(".again")
            await page.locator(f".error:has-text('{title}')").wait_for()
        a.answer = speech = Speech("I am h", complete=False)
        await page.click(".again")
        await page.wait_for_selector(".answer:has-text('I am h')")
        speech.cut()
        await page.locator(".error:has-text('The answer was cut')").wait_for()
        assert await page.inner_text(".answer") == "I am h"
        a.answer = Speech("I am here.")
        await page.click(".again")
        await answered(page)
        await page.wait_for_selector(".answer:has-text('I am here.')")
        assert not await error.count()
        assert [message["content"] for message in received(a)["messages"]] == ["Are you there?"]


async def test_a_question_without_an_answer_is_not_given_to_the_model_again(
    browser: Browser,
    valkey_url: str,
) -> None:
    async with talking(browser, valkey_url) as (page, _, a, __):
        a.answer = status(400)
        await say(page, "One?")
        await page.locator(".error").wait_for()
        a.answer = Speech("Two.")
        await say(page, "Two?")
        await page.wait_for_selector(".answer:has-text('Two.')")
        assert [message["content"] for message in received(a)["messages"]] == ["Two?"]
        assert not await page.locator(".again").count()


async def test_a_router_that_is_gone_is_said_so(browser: Browser, valkey_url: str) -> None:
    async with (
        fleet(valkey_url, "a", chat_page=True) as (router, _),
        opened(browser, router.url) as (page, *_),
    ):
        await page.wait_for_selector(".message")
        await page.route("**/v1/chat/completions", lambda route: route.abort())
        await say(page, "Hello?")
        error = page.locator(".error")
        await error.wait_for()
        assert "The router cannot be reached." in await error.inner_text()


async def test_a_key_is_asked_for_and_kept_in_the_tab_alone(
    browser: Browser, valkey_url: str, tmp_path: Path
) -> None:
    keys = key_file(tmp_path, guest={})
    async with fleet(valkey_url, "a", key=ADMIN, api_keys=keys, chat_page=True) as (router, [a]):
        a.answer = lambda request: Speech("Welcome.")(request)
        async with opened(browser, router.url) as (page, _, asked):
            await page.wait_for_selector("#key-form:not([hidden])")
            assert await page.evaluate("document.activeElement.id") == "key"
            await page.keyboard.type("wrong")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#key-error:not(:empty)")
            await page.keyboard.type("guest")
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".message")
            await say(page, "May I?")
            await answered(page)
            assert await page.inner_text(".answer") == "Welcome."
            await page.click(".why summary")
            await page.wait_for_selector(".explanation:has-text('API key of an admin')")
            assert await page.evaluate("sessionStorage['pando-key']") == "guest"
            assert await page.evaluate("localStorage.length + document.cookie.length") == 0
            assert not [url for url in asked if "guest" in url]
            assert "guest" not in await page.content()
            keys.write_text(key_file(tmp_path).read_text())  # the guest is gone

            async def is_asked_for() -> bool:
                if await page.is_visible("#key-form"):
                    return True
                await say(page, "Still?")
                await page.locator("[aria-busy]").wait_for(state="detached")
                return await page.is_visible("#key-form")

            await until(is_asked_for, "the key being asked for again")


async def test_it_asks_the_router_alone(browser: Browser, valkey_url: str) -> None:
    async with fleet(valkey_url, "a", chat_page=True) as (router, [a]):
        a.answer = Speech(
            "![cat](https://images.example/cat.png) <img src='https://images.example/dog.png'>"
            " [here](https://example.org/) <link rel=stylesheet href=https://example.org/a.css>"
        )
        async with opened(browser, router.url) as (page, complaints, asked):
            await page.wait_for_selector(".message")
            await say(page, "Show me.")
            await answered(page)
            await page.wait_for_selector(".why summary span")
            foreign = [url for url in asked if not url.startswith((router.url, "data:"))]
            assert not foreign
            assert not complaints


async def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Browser, valkey_url: str
) -> None:
    async with talking(browser, valkey_url, **PHONE) as (page, _, a, complaints):
        wide = "`" + "x" * 200 + "`\n\n```python\n" + "y = 1; " * 60 + "\n```\n\n"
        table = "| " + " | ".join(["column"] * 12) + " |\n" + "|---" * 12 + "|\n"
        a.answer = Speech(wide, table, "z" * 300)
        await say(page, "w" * 300)
        await answered(page)
        await page.click(".why summary")
        await page.wait_for_selector(".explanation table")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 375
        assert await page.evaluate("document.documentElement.scrollHeight") <= 740
        log = "document.querySelector('.log')"
        assert await page.evaluate(f"{log}.scrollWidth <= {log}.clientWidth")
        assert await page.is_visible(".message")
        assert not await page.is_visible("#side")
        assert not complaints


async def test_it_is_dark_where_the_system_is(browser: Browser, valkey_url: str) -> None:
    async with talking(browser, valkey_url) as (page, _, a, __):
        a.answer = Speech("Look.")
        await say(page, "Look?")
        await answered(page)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            for selector in (".pane", ".question", ".answer", ".facts"):
                background, ink = await page.locator(selector).evaluate(BRIGHTNESS)
                assert abs(background - ink) > 0.4, (scheme, selector)
                assert (background > 0.5) == (scheme == "light")


async def test_questions_sent_while_an_answer_comes_wait_in_the_field(
    browser: Browser, valkey_url: str
) -> None:
    async with talking(browser, valkey_url) as (page, _, a, __):
        a.answer = speech = Speech("Wait", complete=False)
        await say(page, "First?")
        await page.wait_for_selector(".answer p:has-text('Wait')")
        await say(page, "Second?")
        assert await page.input_value(".message") == "Second?"
        assert len(a.received) == 1
        speech.end()
        await answered(page)
        assert await page.input_value(".message") == "Second?"
