"""The dashboard's data and page without a browser; test_dashboard_page.py uses one."""

import base64
import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_fleet.records.decisions import PastDecision, PastDecisions
from pando_fleet.redis.client import connect
from pando_router.dashboard.history import POINTS, WINDOW, History, Totals, difference, quantile
from pando_router.dashboard.routes import PAGE, SCRIPTS
from pando_router.pages.document import read_document
from tests.fleet.redis_server import RedisServer
from tests.router.process.router_process import router_process
from tests.router.tenants.tenants_world import ADMIN, key_file
from tests.router.world import Replica, RouterClient, Stream, cached, completion, serving, until

PROMPTS = ("prompt_tokens", "predicted_tokens", "delivered_tokens")
BOUNDS = (0.1, 0.5, 1.0, 5.0, float("inf"))


def totals(at: float, **more: float) -> Totals:
    given_ = dict.fromkeys(("answered", "refused", "failed", *PROMPTS), 0.0)
    return Totals(
        at=at,
        **given_ | more,
        cuts=0.0,
        tokens_in=0.0,
        tokens_out=0.0,
        first_tokens=(0.0,) * len(BOUNDS),
        gap_s=0.0,
        gaps=0.0,
        in_flight=0,
        queued=0,
    )


@given(st.lists(st.floats(0.001, 20), min_size=1, max_size=50), st.floats(0.01, 1))
def test_quantile_is_in_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    buckets = [0] * len(BOUNDS)
    for value in values:
        buckets[bisect_left(BOUNDS, value)] += 1
    found = quantile(BOUNDS, list(accumulate(buckets)), q)
    rank = max(1, -int(-q * len(values) // 1))
    true = sorted(values)[rank - 1]
    bucket = bisect_left(BOUNDS, true)
    lower = BOUNDS[bucket - 1] if bucket else 0.0
    upper = BOUNDS[bucket] if bucket < len(BOUNDS) - 1 else BOUNDS[-2]
    assert found is not None
    assert lower - 1e-9 <= found <= upper + 1e-9


def test_point_is_the_difference_between_two_moments() -> None:
    before = totals(100.0, answered=10, prompt_tokens=1000, delivered_tokens=100)
    now = totals(
        104.0, answered=50, failed=4, prompt_tokens=2000, predicted_tokens=800, delivered_tokens=600
    )
    point = difference(before, now, BOUNDS)
    assert (point.answered_per_s, point.failed_per_s) == (10, 1)
    assert (point.predicted, point.delivered) == (0.8, 0.5)
    assert point.ttft_p50_s is point.inter_token_s is None
    assert difference(now, now, BOUNDS).delivered is None


@given(st.integers(0, 2 * POINTS), st.integers(0, 2 * POINTS))
def test_history_is_bounded_and_what_was_read_is_not_sent_again(added: int, seen: int) -> None:
    history = History(BOUNDS)
    for number in range(added + 1):
        history.add(totals(float(number)))
    kept = list(range(1, added + 1))[-POINTS:]
    wanted = [at for at in kept if at > seen] if seen <= added else kept
    assert history.after(seen)["at"] == wanted
    assert history.last == added


def test_rates_are_over_the_window() -> None:
    history = History(BOUNDS)
    for second in range(3 * WINDOW):
        history.add(totals(float(second), answered=7.0 * second))
    assert history.after(0)["answered_per_s"] == pytest.approx([7.0] * (3 * WINDOW - 1))


async def data(router: RouterClient, after: int = 0) -> dict[str, object]:
    answer = await router.get(f"/dashboard/data?after={after}")
    assert answer.status == 200
    found: dict[str, object] = answer.json
    return found


def seen(found: dict[str, object], field: str) -> list[float]:
    points = found["points"]
    assert isinstance(points, dict)
    return [value for value in points[field] if value]


async def test_a_clients_mistakes_are_neither_answered_nor_failed(valkey_url: str) -> None:
    async with Replica(valkey_url, "a"), serving(valkey_url) as router:
        await router.ready("a")
        for _ in range(3):
            assert (await router.post("/v1/completions", completion(model="none"))).status == 404

        async def measured() -> bool:
            return bool(seen(await data(router), "refused_per_s"))

        await until(measured, "points that include the requests")
        found = await data(router)
        assert not seen(found, "answered_per_s") and not seen(found, "failed_per_s")


async def test_data_shows_what_the_fleet_does(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", capacity_tokens=1000, pinned_tokens=200, cached_tokens=300) as a,
        serving(valkey_url) as router,
    ):
        await router.ready("a")
        a.answer = cached(60, 100)
        await router.post("/v1/completions", completion())
        stream = Stream()
        stream.put(b"data: 1\n\n")
        stream.end()
        a.answer = stream
        await router.post("/v1/completions", completion(stream=True))
        await a.say(inter_token_seconds_total=0.0, inter_tokens_total=0)
        sampled = (await data(router))["last"]
        assert isinstance(sampled, int)

        async def sampled_again() -> bool:
            return len(seen(await data(router, sampled), "at")) >= 2

        await until(sampled_again, "the replica's counters being known")
        await a.say(
            inter_token_seconds_total=3.0,
            inter_tokens_total=100,
            prompt_tokens_total=500,
            output_tokens_total=60,
        )

        async def measured() -> bool:
            found = await data(router)
            return all(
                seen(found, field)
                for field in (
                    *("answered_per_s", "delivered", "ttft_p95_s", "inter_token_s"),
                    *("tokens_in_per_s", "tokens_out_per_s"),
                )
            )

        await until(measured, "points that include the requests")
        found = await data(router)
        assert max(seen(found, "delivered")) == pytest.approx(0.6)
        assert seen(found, "inter_token_s")[-1] == pytest.approx(0.03)
        tokens = [seen(found, f"tokens_{way}_per_s")[-1] for way in ("in", "out")]
        assert tokens[0] / tokens[1] == pytest.approx(500 / 60)
        models = found["models"]
        assert isinstance(models, dict)
        rates = models["m"]
        assert rates["tokens_in_per_s"] / rates["tokens_out_per_s"] == pytest.approx(500 / 60)
        pools = found["pools"]
        assert isinstance(pools, dict)
        (row,) = pools["default"]
        assert (row["pinned_tokens"], row["cached_tokens"], row["free_tokens"]) == (200, 300, 500)
        assert row["breaker"] == "closed"
        last = found["last"]
        assert isinstance(last, int)

        async def newer() -> bool:
            return bool(seen(await data(router, last), "at"))

        await until(newer, "a newer point")
        assert len(seen(await data(router, last), "at")) < len(seen(await data(router), "at"))


async def test_with_api_keys_the_page_is_open_and_its_data_are_an_admins(
    valkey_url: str, tmp_path: Path
) -> None:
    async with serving(valkey_url, api_keys=key_file(tmp_path, guest={})) as router:
        assert (await router.get("/dashboard")).status == 200
        assert (await router.get("/dashboard/data")).status == 401
        for key, status in ((ADMIN, 200), ("guest", 403)):
            headers = {"authorization": f"Bearer {key}"}
            answer = await router.request("GET", "/dashboard/data", headers=headers)
            assert answer.status == status


async def test_page_runs_and_fetches_nothing_but_itself(valkey_url: str) -> None:
    async with serving(valkey_url) as router:
        page = await router.get("/dashboard")
    html = page.body.decode()
    assert page.headers["content-type"].startswith("text/html")
    policy = dict(
        part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{element}-src"] == f"'sha256-{digest}'"
    assert not re.findall(r"(?:src|href)=\"(?!#|data:,|/chat\")", html)
    assert not re.findall(
        r"\bon\w+=\"|\bstyle=\"|javascript:|https?://(?!www\.w3\.org/2000/svg)", html
    )


def test_page_has_names_for_everything_that_is_operated() -> None:
    html = read_document(PAGE, SCRIPTS).html
    fields = re.findall(r"<(?:input|select|textarea) id=\"([\w-]+)\"", html)
    assert len(fields) == 6
    assert all(f'<label for="{name}"' in html for name in fields)
    ids = re.findall(r"\bid=\"([\w-]+)\"", html)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r"byId\(\"([\w-]+)\"\)", html))
    assert wanted <= set(ids)
    assert '<html lang="en">' in html
    assert re.findall(r"<h(\d)", html)[0] == "1"


async def test_the_operator_s_last_decisions_are_shown_also_while_redis_is_away(
    start_valkey: Callable[..., RedisServer],
) -> None:
    server = start_valkey()
    redis = connect(server.url)
    decision = PastDecision(at_s=1.5, before=1, after=2, reason="pressure 0.9")
    await PastDecisions(redis).put("default", [decision])
    await redis.aclose()
    shown = {"default": [{"at_s": 1.5, "before": 1, "after": 2, "reason": "pressure 0.9"}]}
    async with serving(server.url) as router:

        async def is_shown() -> bool:
            return (await data(router))["decisions"] == shown

        await until(is_shown, "the decision on the dashboard")
        assert (await router.get("/fleet")).json["decisions"] == shown
        server.stop()

        async def away() -> bool:
            return bool((await router.get("/fleet")).json["redis"] == "away")

        await until(away, "Redis is away")
        assert (await data(router))["decisions"] == shown


@pytest.mark.e2e
async def test_each_of_several_processes_shows_what_it_served(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        router_process(valkey_url, processes=2) as (parent, router),
    ):
        shown: dict[str, list[float]] = {}

        async def both() -> bool:
            await router.post("/v1/completions", completion())
            found = await data(router)
            about = found["router"]
            assert isinstance(about, dict)
            assert about["processes"] == 2
            shown[about["id"]] = seen(found, "answered_per_s")
            return len(shown) == 2 and all(shown.values())

        await until(both, "requests at both")
        parent.terminate()
        assert await parent.wait() == 0
