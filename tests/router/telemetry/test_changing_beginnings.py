"""Prompts that lose what caches hold of them because of a few early bytes."""

import logging
from random import Random

import pytest

from pando_router.listeners import changing_beginnings
from pando_router.listeners.changing_beginnings import (
    EARLY_BYTES,
    LONG_BYTES,
    Beginnings,
    first_difference,
)
from tests.router.world import Replica, completion, serving


def text(seed: int, size: int = LONG_BYTES) -> bytes:
    """Lower-case words, unlike those of other seeds."""
    rng = Random(seed)
    return bytes(rng.choice(b"abcdefghijklmnopqrstuvwxyz ") for _ in range(size))


RULES, WORK = text(1, 212), text(2)


def changing(number: int) -> bytes:
    return RULES + b"now: %d; " % number + WORK


def test_the_first_different_byte_is_found() -> None:
    assert first_difference(b"", b"a") == 0
    assert first_difference(b"tree", b"tree") == 4
    one, other = text(3), bytearray(text(3))
    for place in (0, 1, 211, LONG_BYTES - 1):
        other[place] ^= 1
        assert first_difference(one, bytes(other)) == place
        other[place] ^= 1


def test_a_number_that_changes_is_found_where_it_begins_to_differ() -> None:
    """Though it grows, and two of them begin alike."""
    known = Beginnings()
    found = [known.differs(changing(number)) for number in (170, 9, 8_123, 8_155)]
    assert found == [None, (217, 1), (217, 2), (217, 3)]


def test_applications_that_take_turns_are_told_apart() -> None:
    known = Beginnings()
    for number in range(3):
        mine, yours = known.differs(changing(number)), known.differs(text(4) + text(5))
        assert (mine is None) == (number == 0)
        assert yours is None, "it does not change"


def test_prompts_with_little_in_common_are_not_reported() -> None:
    known = Beginnings()
    for number in range(10, 30):
        assert known.differs(RULES + text(number)) is None


def test_prompts_that_differ_late_are_not_reported() -> None:
    known = Beginnings()
    for number in range(5):
        assert known.differs(text(6, EARLY_BYTES) + b"%d" % number + WORK) is None


def test_only_so_many_prompts_and_places_are_kept() -> None:
    known = Beginnings()
    for place in range(0, EARLY_BYTES, 128):
        known.differs(WORK)
        known.differs(WORK[:place] + b"#" + WORK[place + 1 :])
    assert len(known.prompts) <= 4
    assert len(known.places) <= 8


async def test_it_is_logged_counted_and_shown_once_it_happens_again_and_again(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(changing_beginnings, "EVERY_S", 0.0)
    async with Replica(valkey_url, "a"), serving(valkey_url) as router:
        await router.ready("a")
        with caplog.at_level(logging.WARNING, logger="pando.router"):
            for number in range(10, 18):
                prompt = changing(number).decode()
                assert (await router.post("/v1/completions", completion(prompt))).status == 200
        said = [one for one in caplog.records if "prompts differ early" in one.getMessage()]
        assert [(vars(one)["model"], vars(one)["byte"]) for one in said] == [("m", 218)]
        assert WORK[:32].decode() not in caplog.text
        page = (await router.get("/metrics")).body.decode()
        assert 'pando_router_changing_beginnings_total{model="m"} 3.0' in page
        events = (await router.get("/dashboard/data")).json["events"]
        assert [(one["model"], one["byte"]) for one in events if one["what"] == "differ"] == [
            ("m", 218)
        ]
