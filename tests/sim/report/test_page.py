"""The HTML report: complete in one file, bounded, accessible, and correct in a real browser at any
width and in both colour schemes."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, Page

from pando_sim.records import Event
from pando_sim.report import Digest, digest
from pando_sim.report.digest import shared_events
from pando_sim.report.page import page as page_module
from pando_sim.report.page.page import MOST_STEPS, render, write_page
from pando_sim.report.plots.canvas import RUN_COLOURS
from tests.router.control.browser import in_browser, tab
from tests.router.control.palette import MEANT, degrees_apart, shared, variables
from tests.sim.report.made_runs import ABOUT, made_digest, made_run


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.found if name == tag)


@asynccontextmanager
async def opened(
    browser: Browser,
    digests: list[Digest],
    folder: Path,
    *,
    width: int = 1280,
    scheme: str = "light",
) -> AsyncIterator[Page]:
    """The page in a browser, whose console must show no errors."""
    write_page(folder / "report.html", ABOUT, digests)
    viewport = {"width": width, "height": 900}
    async with tab(browser, viewport=viewport, color_scheme=scheme) as shown:
        complaints: list[str] = []
        shown.on("console", lambda message: complaints.append(message.text))
        await shown.goto(f"file://{folder}/report.html")
        yield shown
        assert not complaints


@pytest.fixture(scope="module")
def digests() -> list[Digest]:
    return [
        made_digest("cache_aware", slowness=0.8, requests=800, faults=True),
        made_digest("<round> & robin", slowness=3.0, requests=800, faults=True),
    ]


@pytest.fixture(scope="module")
def page(digests: list[Digest]) -> str:
    return render(ABOUT, digests)


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    elements = Elements(page)
    assert not [tag for tag, _ in elements.found if tag in ("link", "img", "iframe")]
    assert list(elements.of("script")) == [{}]
    for tag, attributes in elements.found:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert not re.search(r"url\((?!#)|@import", page)


def test_names_are_text_and_never_markup(page: str) -> None:
    assert "<round>" not in page
    assert "&lt;round&gt; &amp; robin" in page


def test_the_page_says_what_was_simulated_and_how_to_do_it_again(page: str) -> None:
    for words in (ABOUT.command, ABOUT.trace, ABOUT.cost_model, ABOUT.pool_summary, "replica-2"):
        assert words in page


def test_every_plot_says_in_words_what_it_shows(page: str) -> None:
    plots = [one for one in Elements(page).of("svg") if one.get("aria-hidden") != "true"]
    assert len(plots) > 15
    for attributes in plots:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"] or "") > 40


def test_identities_are_unique_and_those_referred_to_exist(page: str) -> None:
    identities = [a["id"] for _, a in Elements(page).found if a.get("id")]
    assert len(identities) == len(set(identities))
    referred = set(re.findall(r'(?:href="|url\()#([^")]+)', page))
    assert referred <= set(identities)


def test_colours_are_the_pages_own(page: str) -> None:
    plots = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "var(--run-1)" in plots
    assert not re.findall(r"#[0-9a-fA-F]{6}\b", plots)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_a_colour_means_the_same_on_the_report_and_the_dashboard(scheme: int) -> None:
    report = variables(Path(page_module.__file__).parent / "style.css", scheme)
    dashboard = shared(scheme)
    assert report["fault"] == dashboard["bad"]
    assert all(report[name] == dashboard[name] for name in ("pinned", "cached"))
    runs = [colour for name, colour in report.items() if name.startswith("run-")]
    assert len(runs) == RUN_COLOURS
    for meaning in set(MEANT) - {"one"}:  # a run may be blue: all of it is what is served
        assert min(degrees_apart(run, dashboard[meaning]) for run in runs) >= 20, meaning


def test_wide_tables_are_reachable_by_keyboard(page: str) -> None:
    regions = [a for a in Elements(page).of("div") if "scroll" in (a.get("class") or "")]
    assert regions
    assert all(a["tabindex"] == "0" and a["role"] == "region" for a in regions)
    assert all(a.get("aria-label") for a in regions)


def test_a_page_of_many_runs_is_below_two_megabytes() -> None:
    runs = [
        made_digest(f"policy-{number}", requests=5000, scaling="pando", faults=True)
        for number in range(16)
    ]
    assert len(render(ABOUT, runs).encode()) < 2_000_000


def test_of_many_scaling_decisions_the_first_are_shown_and_the_others_counted() -> None:
    one = made_digest("p", requests=300, scaling="pando")
    many = msgspec.structs.replace(one, steps=one.steps * 100)
    assert f"{len(many.steps) - MOST_STEPS} more are in results.json" in render(ABOUT, [many])


def test_a_fault_that_only_some_runs_had_is_one_line_that_says_so() -> None:
    died, not_there = "replica-2 dies", "replica-2 dies: no, it is not there"
    here, there = (made_digest(name, requests=300, faults=True) for name in ("here", "there"))
    (first, second), at_s = here.events, here.events[0].at_s
    other = msgspec.structs.replace(there, events=[Event(at_s=at_s, what=not_there)])
    assert shared_events([here, other]) == [Event(at_s=at_s, what=f"{died}; {not_there}"), second]
    assert shared_events([here, here]) == [first, second]
    assert f"{died}; {not_there}" in render(ABOUT, [here, other])


def test_a_run_in_which_nothing_was_answered_has_a_page() -> None:
    run = made_run("p", requests=100)
    run.served = []
    empty = digest(run, slow_ttft_s=2.0, slow_gap_s=0.05, gpus_per_replica=1)
    assert "No request was answered" in render(ABOUT, [empty])


@in_browser
@pytest.mark.parametrize("width", [360, 768, 1280])
async def test_no_page_is_wider_than_its_window(
    browser: Browser, digests: list[Digest], tmp_path: Path, width: int
) -> None:
    async with opened(browser, digests, tmp_path, width=width) as shown:
        assert await shown.evaluate("document.documentElement.scrollWidth") <= width


@in_browser
async def test_dark_is_dark_and_light_is_light(
    browser: Browser, digests: list[Digest], tmp_path: Path
) -> None:
    script = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('.lines .run-0 path')).stroke"
    colours = {}
    for scheme in ("light", "dark"):
        async with opened(browser, digests, tmp_path, scheme=scheme) as shown:
            colours[scheme] = (await shown.evaluate(script), await shown.evaluate(line))
    assert colours["light"][0] == "rgb(255, 255, 255)"
    assert colours["dark"][0] == "rgb(20, 23, 27)"
    assert colours["light"][1] != colours["dark"][1]


@in_browser
async def test_a_run_is_hidden_in_the_plots_by_its_name(
    browser: Browser, digests: list[Digest], tmp_path: Path
) -> None:
    async with opened(browser, digests, tmp_path) as shown:
        line = shown.locator(".lines .run-1").first
        assert await line.is_visible()
        await shown.locator("#show-1").focus()
        await shown.keyboard.press("Space")
        assert not await line.is_visible()
        assert await shown.locator(".lines .run-0").first.is_visible()


@pytest.fixture(scope="module")
def twelve() -> list[Digest]:
    return [
        made_digest(f"rule-{number}", slowness=1 + number / 4, requests=200, seed=number)
        for number in range(12)
    ]


def test_twelve_runs_differ_by_colour_and_dashes(twelve: list[Digest]) -> None:
    page = render(ABOUT, twelve)
    legend = page[page.index('<fieldset class="legend">') : page.index("</fieldset>")]
    looks = re.findall(r'class="dash-(\d)"[^>]*var\(--run-(\d)\)', legend)
    assert len(looks) == len(set(looks)) == 12
    assert page.index("<title>rule-11</title>")


@in_browser
async def test_tables_sort_by_their_columns_with_what_has_no_value_last(
    browser: Browser, twelve: list[Digest], tmp_path: Path
) -> None:
    nothing = msgspec.structs.replace(
        twelve[3], statistics=msgspec.structs.replace(twelve[3].statistics, matched_rate=0.0)
    )
    async with opened(browser, [*twelve[:3], nothing, *twelve[4:]], tmp_path) as shown:

        async def column(name: str) -> list[str]:
            await shown.click(f"#results thead button:text-is('{name}')")
            words: list[str] = await shown.eval_on_selector_all(
                "#results table tr",
                "(rows, name) => { const at = [...rows[0].cells].findIndex((one) =>"
                " one.textContent === name);"
                " return rows.slice(1).map((row) => row.cells[at].textContent.replace(' ★', ''));}",
                name,
            )
            return words

        def shares(words: list[str]) -> list[float]:
            return [float(one.removesuffix(" %")) for one in words]

        rising = shares(await column("goodput"))
        assert rising == sorted(rising)
        falling = shares(await column("goodput"))
        assert falling == rising[::-1]
        for _ in range(2):
            promised = await column("promised")
            assert promised[-1] == "–"  # noqa: RUF001
            assert "–" not in promised[:-1]  # noqa: RUF001


@in_browser
async def test_a_run_is_shown_alone_and_stands_out_under_the_pointer(
    browser: Browser, twelve: list[Digest], tmp_path: Path
) -> None:
    async with opened(browser, twelve, tmp_path) as shown:

        async def opacity(run: int) -> float:
            line = shown.locator(f"#over-time .run-{run}").first
            return float(await line.evaluate("(one) => getComputedStyle(one).opacity"))

        await shown.add_style_tag(content=".lines g { transition: none !important; }")
        await shown.hover("#name-7 label")
        assert await opacity(7) == 1
        assert await opacity(2) < 0.2
        await shown.click("#name-7 .only")
        assert await shown.locator("#over-time .run-7").first.is_visible()
        assert not await shown.locator("#over-time .run-2").first.is_visible()
        await shown.click(".legend .all")
        assert await shown.locator("#over-time .run-2").first.is_visible()
