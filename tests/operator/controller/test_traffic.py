"""Once a pool has had other traffic for a week than its tuning expects, its status says so."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_operator.controller.traffic import (
    Traffic,
    TrafficMeter,
    followed,
    has_other_traffic,
)
from pando_operator.kube.resources import WORKER_POOLS
from pando_operator.resource.status import TuningStatus
from pando_operator.resource.tuned_on import ANNOTATION, TunedOn, tuned_on
from tests.operator.controller.conftest import FAST, Scene

TUNED = TunedOn(
    trace="week.jsonl",
    date=date(2026, 11, 1),
    requests_per_hour=600,
    prompt_tokens=1000,
    output_tokens=200,
    hit_rate=0.6,
)
BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
SAME = Traffic(requests=50, prompt_tokens=50_000, cached_tokens=30_000, output_tokens=10_000)
STEP = timedelta(minutes=5)


def days(
    count: int, more: Traffic, before: TuningStatus | None = None, begin: datetime = BEGIN
) -> TuningStatus:
    """The status after some days in which `more` is counted every five minutes."""
    tuning, now = before, begin
    while now <= begin + timedelta(days=count):
        tuning = followed(tuning, TUNED, more, now)
        now += STEP
    assert tuning is not None
    return tuning


def after(count: int) -> datetime:
    return BEGIN + timedelta(days=count)


def test_the_same_traffic_is_the_same() -> None:
    tuning = days(9, SAME)
    assert (tuning.other, tuning.other_since) == ("", None)
    assert not has_other_traffic(tuning, after(9))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            replace(SAME, requests=0, prompt_tokens=0, cached_tokens=0, output_tokens=0),
            "0 requests",
        ),
        (Traffic(100, 100_000, 60_000, 20_000), "1,200 requests an hour instead of 600"),
        (replace(SAME, prompt_tokens=100_000, cached_tokens=60_000), "prompts of 2,000 tokens"),
        (replace(SAME, output_tokens=5_000), "answers of 100 tokens instead of 200"),
        (replace(SAME, cached_tokens=10_000), "a hit rate of 20% instead of 60%"),
    ],
)
def test_a_week_of_other_traffic_is_other_traffic(more: Traffic, words: str) -> None:
    six, eight = days(6, more), days(8, more)
    assert words in eight.other
    assert not has_other_traffic(six, after(6))
    assert has_other_traffic(eight, after(8))


def test_one_day_as_before_begins_the_week_anew() -> None:
    other = replace(SAME, output_tokens=5_000)
    tuning = days(2, SAME, days(6, other), after(6))
    assert tuning.other_since is None
    tuning = days(6, other, tuning, after(8) + STEP)
    assert tuning.other and not has_other_traffic(tuning, after(14))


def test_a_day_with_a_gap_is_not_judged() -> None:
    tuning = followed(days(0, SAME), TUNED, SAME, BEGIN + timedelta(hours=23))
    tuning = followed(tuning, TUNED, SAME, BEGIN + timedelta(hours=24.1))
    assert tuning is not None and tuning.day.requests == 0 and tuning.other == ""


def test_another_search_begins_anew_and_without_the_annotation_nothing_is_compared() -> None:
    tuning = days(8, replace(SAME, output_tokens=0))
    again = TUNED.model_copy(update={"date": date(2026, 11, 10)})
    new = followed(tuning, again, SAME, after(8))
    assert new is not None and new.other_since is None and new.day.requests == 0
    assert followed(tuning, None, SAME, after(8)) is None


def replica(name: str, prompts: int) -> Replica:
    beat = Heartbeat(
        replica=name,
        incarnation=name,
        url="http://w",
        model="m",
        state=ReplicaState.READY,
        prompts_total=prompts,
        prompt_tokens_total=10 * prompts,
        decoded_tokens_total=4 * prompts,
    )
    return Replica(beat=beat, age_ms=0)


def test_workers_counters_are_counted_from_when_they_are_known() -> None:
    meter = TrafficMeter()
    assert meter.more([replica("a", 100)]) == Traffic()
    assert meter.more([replica("a", 130), replica("b", 5)]) == Traffic(35, 350, 0, 175)
    assert meter.more([]) == Traffic()
    assert meter.more([replica("a", 131), replica("b", 5)]) == Traffic(1, 10, 0, 5)


@pytest.mark.parametrize("text", ["", "week.jsonl", "{}", '{"trace": "", "date": "today"}'])
def test_an_annotation_that_cannot_be_read_is_none(text: str) -> None:
    assert tuned_on({ANNOTATION: text}) is None


async def test_a_pool_says_what_it_was_tuned_on_also_after_the_operators_restart(
    scene: Scene,
) -> None:
    async with scene.operator():
        await scene.make(scaling={"mode": "Auto", **FAST})
        await scene.serving(1)
        assert "tuning" not in await scene.status()
        await scene.kube.patch(
            WORKER_POOLS,
            scene.key(),
            {"metadata": {"annotations": {ANNOTATION: TUNED.written()}}},
            manager="kubectl",
        )

        async def is_noted() -> bool:
            return bool((await scene.status()).get("tuning", {}).get("trace") == "week.jsonl")

        await scene.until(is_noted, "the status names the trace")
        assert (await condition(scene))["status"] == "False"
    old = (datetime.now(UTC) - timedelta(days=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    other = {"otherSince": old, "other": "answers of 100 tokens instead of 200"}
    await scene.kube.patch(
        WORKER_POOLS,
        scene.key(),
        {"status": {"tuning": other}},
        manager="test",
        subresource="status",
    )
    async with scene.operator():

        async def is_other() -> bool:
            return (await condition(scene))["status"] == "True"

        await scene.until(is_other, "the condition holds")
    message = (await condition(scene))["message"]
    assert "week.jsonl, 2026-11-01: answers of 100 tokens instead of 200" in message


async def condition(scene: Scene) -> dict[str, str]:
    conditions: list[dict[str, str]] = (await scene.status()).get("conditions") or []
    found = [one for one in conditions if one["type"] == "TunedForOtherTraffic"]
    return found[0] if found else {"status": "", "message": ""}
