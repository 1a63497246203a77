"""A model's markdown in a browser: what it becomes, that it never becomes markup, and its cost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page

from pando_router.chat.routes import PAGE
from pando_router.pages.document import SHARED
from tests.router.control.browser import in_browser, tab

pytestmark = in_browser

SCRIPTS = [SHARED / "format.js", *(PAGE / f"{name}.js" for name in ("inline", "blocks", "answer"))]

SHOW = """([pieces, framed]) => {
  document.body.replaceChildren();
  const answer = new Answer(document.body);
  for (const piece of pieces) {
    answer.add(piece);
    if (framed) answer.draw();
  }
  answer.finish();
  return document.body.innerHTML;
}"""

TIME = """([unit, count]) => {
  const began = performance.now();
  inline(unit.repeat(count));
  const node = document.createElement('div');
  fill(node, unit.repeat(count) + '\\n' + unit.repeat(count), 0);
  return performance.now() - began;
}"""
"""Milliseconds that a unit of text takes, so many times in one block."""


@asynccontextmanager
async def renderer(browser: Browser) -> AsyncIterator[Page]:
    """A page with the scripts that make markdown elements, and nothing else."""
    async with tab(browser) as page:
        for script in SCRIPTS:
            await page.add_script_tag(content=script.read_text(encoding="utf-8"))
        yield page


def link(href: str, text: str) -> str:
    return (
        f'<a href="{href}" title="{href}" target="_blank" rel="noopener noreferrer nofollow">'
        f"{text}</a>"
    )


BECOMES = {
    "1 *two* **three** `four`": "<p>1 <em>two</em> <strong>three</strong> <code>four</code></p>",
    "***both*** and ~~gone~~": "<p><strong><em>both</em></strong> and <del>gone</del></p>",
    "snake_case_name and 2 * 3 * 4": "<p>snake_case_name and 2 * 3 * 4</p>",
    "open **mark": "<p>open **mark</p>",
    "**a *b** c*": "<p><strong>a *b</strong> c*</p>",
    r"\*not\*": "<p>*not*</p>",
    "``a ` b``": "<p><code>a ` b</code></p>",
    "one ` tick": "<p>one ` tick</p>",
    "# Title\ntext": "<h3>Title</h3><p>text</p>",
    "a\n\nb": "<p>a</p><p>b</p>",
    "- a\n- b": "<ul><li><p>a</p></li><li><p>b</p></li></ul>",
    "3. a\n4. b": '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol>',
    "1. a\n\n2. b": "<ol><li><p>a</p></li><li><p>b</p></li></ol>",
    "- a\n  - b\n- c": "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>",
    "> a\n> b": "<blockquote><p>a\nb</p></blockquote>",
    "---": "<hr>",
    "a <b> & c": "<p>a &lt;b&gt; &amp; c</p>",
    "[a *b*](https://x.example/y?z=(1))": "<p>"
    + link("https://x.example/y?z=(1)", "a <em>b</em>")
    + "</p>",
    "see https://x.example/a_b.": "<p>see "
    + link("https://x.example/a_b", "https://x.example/a_b")
    + ".</p>",
    "![alt](https://x.example/i.png)": "<p>"
    + link("https://x.example/i.png", "image: alt")
    + "</p>",
    "[a](b) [c": "<p>[a](b) [c</p>",
    "([a](https://x.example))": "<p>(" + link("https://x.example", "a") + ")</p>",
    "` a ` ` `": "<p><code>a</code> <code> </code></p>",
    "| a | b |\n|---|:-:|\n| *c* | d |": (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table><thead><tr>'
        "<th>a</th><th>b</th></tr></thead><tbody><tr><td><em>c</em></td><td>d</td></tr></tbody>"
        "</table></div>"
    ),
}

HOSTILE = (
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "<svg onload='window.hurt = 1'>",
    "[click](javascript:window.hurt=1)",
    "[click](JaVaScRiPt:window.hurt=1)",
    "[click](data:text/html,<script>window.hurt=1</script>)",
    "[click](vbscript:x) [a](//evil.example) [b](\tjavascript:x)",
    "<a href='javascript:window.hurt=1'>x</a>",
    "![x](javascript:window.hurt=1)",
    '```"><script>window.hurt=1</script>\nx\n```',
    "| <script>window.hurt=1</script> |\n|---|\n| <img src=x onerror=window.hurt=1> |",
    '[a](https://x.example/"onmouseover="window.hurt=1)',
)

WHOLE = """# Groves

A *grove* is a **small wood**, see https://x.example/grove:

1. oaks
   - old
   - young
2. `birches`

| tree | leaves |
|---|---|
| oak | *lobed* |

```python
for tree in grove:
    print(tree)
```

> Trees, they say,
> are tall.

The end.
"""


async def test_markdown_becomes_elements(browser: Browser) -> None:
    async with renderer(browser) as page:
        for text, html in BECOMES.items():
            assert await page.evaluate(SHOW, [[text], False]) == html, text
        code = await page.evaluate(SHOW, [["```python\nx < 1\n\ny\n```\nafter"], False])
        assert "<code>x &lt; 1\n\ny</code></pre></div><p>after</p>" in code
        assert "<span>python</span>" in code


async def test_text_of_a_model_never_becomes_markup(browser: Browser) -> None:
    async with renderer(browser) as page:
        for text in HOSTILE:
            await page.evaluate(SHOW, [[text], False])
            found = await page.evaluate(
                "[...document.body.querySelectorAll('*')].filter((node) => !['P', 'CODE', 'PRE',"
                " 'DIV', 'SPAN', 'BUTTON', 'TABLE', 'THEAD', 'TBODY', 'TR', 'TH', 'TD']"
                ".includes(node.tagName) && !(node.tagName === 'A' && /^https?:/.test(node.href))"
                ").map((node) => node.outerHTML)"
            )
            assert not found, text
            attributes = await page.evaluate(
                "[...document.body.querySelectorAll('*')].flatMap((node) =>"
                " [...node.attributes].map(({ name }) => name)).filter((name) => /^on/.test(name))"
            )
            assert not attributes, text
        assert await page.evaluate("window.hurt") is None


async def test_an_answer_in_pieces_looks_as_the_whole_does(browser: Browser) -> None:
    async with renderer(browser) as page:
        whole = await page.evaluate(SHOW, [[WHOLE], False])
        for size in (1, 2, 3, 7, 50):
            pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
            assert await page.evaluate(SHOW, [pieces, True]) == whole
        assert await page.locator("h3, ol > li, ul > li, td, pre, blockquote").count() == 9


async def test_blocks_that_are_complete_are_not_made_again(browser: Browser) -> None:
    """So a piece costs as much as the last block, however long the answer is."""
    async with renderer(browser) as page:
        nodes = await page.evaluate(
            """() => {
              const answer = new Answer(document.body);
              const made = [];
              for (let i = 0; i < 400; i += 1) {
                const before = document.body.querySelectorAll('*').length;
                const log = new MutationObserver(() => {});
                log.observe(document.body, { childList: true, subtree: true });
                answer.add(`Paragraph ${i} is *here*.\\n\\n- item ${i}\\n\\n`);
                answer.draw();
                made.push(log.takeRecords().reduce((sum, one) => sum + one.addedNodes.length, 0));
                log.disconnect();
              }
              return made;
            }"""
        )
        assert max(nodes[200:]) <= max(nodes[:10])
        first = await page.evaluate_handle("document.body.firstElementChild")
        await page.evaluate("document.body.firstElementChild.kept = true")
        assert await first.evaluate("(node) => node.kept")


async def test_code_that_grows_is_appended_to(browser: Browser) -> None:
    async with renderer(browser) as page:
        added = await page.evaluate(
            """() => {
              const answer = new Answer(document.body);
              answer.add('```\\nfirst line\\n');
              answer.draw();
              const pre = document.querySelector('pre');
              const log = new MutationObserver(() => {});
              log.observe(document.body, { childList: true, subtree: true });
              for (let i = 0; i < 100; i += 1) {
                answer.add(`line ${i};\\n`);
                answer.draw();
              }
              return [log.takeRecords().length, document.querySelector('pre') === pre];
            }"""
        )
        assert added == [0, True]


async def test_hostile_marks_take_no_more_than_linear_time(browser: Browser) -> None:
    """Ten times the text takes at most about ten times as long, and never seconds."""
    async with renderer(browser) as page:
        for unit in (
            "**a ",
            "`",
            "[",
            "![a](",
            "*_~~",
            "> ",
            "- ",
            "``` ",
            "a|",
            "\\",
            "h",
            "   ",
            "` a",
        ):
            tries = []
            for _ in range(5):  # a busy machine may be slow just then
                short, long = [await page.evaluate(TIME, [unit, n]) for n in (2_000, 20_000)]
                tries.append((short, long))
                if long < 40 * short + 200:
                    break
            else:
                pytest.fail(f"{unit!r} takes {tries} ms")
