"""A tiny Whisper on two replicas behind `pando up`: equal files meet their encoding, and what
Grafana and the dashboard show of it."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from playwright.async_api import Browser
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.up_process import UpProcess
from tests.router.control.browser import in_browser
from tests.router.control.dashboard_world import opened
from tests.router.world import until as eventually
from tests.waiting import PATIENCE_S, until
from tests.worker.audio.hearer import POSITIONS, Hearer, save_hearer
from tests.worker.audio.sounds import noise, wav

pytestmark = [pytest.mark.e2e, pytest.mark.long]

GRAFANA = Path(__file__).parents[2] / "docs" / "grafana" / "pando.json"
FILES, TIMES = 4, 3


@pytest.fixture(scope="module")
def hearer(tmp_path_factory: pytest.TempPathFactory) -> Hearer:
    return save_hearer(tmp_path_factory.mktemp("hearer"))


@pytest.fixture(scope="module")
def fleet(hearer: Hearer) -> Iterator[UpProcess]:
    options = ["--served-model-name", "whisper", "--cpu-kernels", "off", "--threads", "1"]
    with UpProcess("--model", str(hearer.path), "--workers", "2", *options) as fleet:
        yield fleet.wait_ready()


@pytest.fixture(scope="module")
def heard(fleet: UpProcess) -> list[list[tuple[str, int, int]]]:
    """Each file several times: its replica, its tokens, and how many of them were cached."""
    client = openai.OpenAI(
        base_url=f"{fleet.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S
    )

    def ask(seed: int) -> tuple[str, int, int]:
        answer = client.audio.transcriptions.with_raw_response.create(
            model="whisper",
            file=("a.wav", wav(noise(2.0, seed=seed))),
            language="en",
            temperature=1e-7,  # without others to fall back to
        )
        headers = answer.headers
        tokens, cached = (int(headers[f"x-pando-{name}-tokens"]) for name in ("prompt", "cached"))
        return headers["x-pando-replica"], tokens, cached

    with ThreadPoolExecutor(FILES) as together:  # so that both replicas get some at first
        rounds = [list(together.map(ask, range(FILES)))]
    rounds += [[ask(seed) for seed in range(FILES)] for _ in range(TIMES - 1)]
    return [list(times) for times in zip(*rounds, strict=True)]


def test_equal_files_meet_their_encoding(heard: list[list[tuple[str, int, int]]]) -> None:
    for first, *later in heard:
        replica, tokens, cached = first
        assert (tokens, cached) == (POSITIONS, 0)
        assert later == [(replica, POSITIONS, POSITIONS)] * (TIMES - 1)
    assert len({times[0][0] for times in heard}) == 2  # both replicas hear some


def test_grafanas_panel_asks_for_what_workers_export(
    hearer: Hearer, fleet: UpProcess, heard: list[list[tuple[str, int, int]]]
) -> None:
    """And that counts each window once: encoded the first time, found from then on."""
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    (panel,) = (one for one in board["panels"] if one["title"] == "Encoder cache")
    asked = {
        name
        for target in panel["targets"]
        for name in re.findall(r"\bpando_worker_\w+", target["expr"])
    }
    hits, misses = "pando_worker_source_hits_total", "pando_worker_source_misses_total"

    def summed() -> dict[str, float]:
        total = dict.fromkeys(asked, 0.0)
        for replica in fleet.replicas().values():
            text = fleet.get("/metrics", replica["url"]).decode()
            exported = {
                sample.name: sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            total = {name: value + exported[name] for name, value in total.items()}
        return total

    windows = sum(hearer.windows(noise(2.0, seed=seed)) for seed in range(FILES))
    assert windows > FILES  # some files take several
    # A worker's counters follow its answers by up to half a second.
    until(lambda: summed()[hits] + summed()[misses] >= windows * TIMES, "all lookups are counted")
    counted = summed()
    assert (counted[misses], counted[hits]) == (windows, windows * (TIMES - 1))


@in_browser
async def test_the_dashboard_shows_inputs_encoded(
    fleet: UpProcess, heard: list[list[tuple[str, int, int]]], browser: Browser
) -> None:
    def reported() -> list[tuple[int, float]]:
        rows = [row for row in fleet.replicas().values() if row["encoded_sources"]]
        return [(row["encoded_sources"], row["source_hit_rate"]) for row in rows]

    async with opened(browser, fleet.url) as (page, complaints):

        async def is_shown() -> bool:
            rows, text = reported(), await page.inner_text("#replicas")
            numbers = [
                rf"inputs encoded\s*{count}\s*inputs found encoded\s*{round(100 * rate)} %"
                for count, rate in rows
            ]
            is_whole = sum(count for count, _ in rows) >= FILES
            return is_whole and all(re.search(number, text) for number in numbers)

        await eventually(is_shown, "the dashboard has each replica's encoder cache")
        assert not complaints
