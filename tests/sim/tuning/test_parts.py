"""A trace is divided without tearing a conversation, and each part has the load of the whole."""

from dataclasses import replace

import numpy as np
import pytest

from pando_sim.request import Request
from pando_sim.traces.prompts import BlockPrompt, UniquePrompt
from pando_sim.tuning.parts import DAY_S, LONGER, SHIFT_S, divided

HOUR_S = 3600.0
ALL = 10**9  # requests: no excerpt


def chats(count: int, turns: int, hours: float) -> list[Request]:
    """Conversations, one after the other begun, with a turn a minute. All begin with the same
    block; each turn waits for the answer of the one before."""
    every_s = (hours * HOUR_S - 60.0 * turns) / count
    moments = sorted(
        (who * every_s + 60.0 * turn, who, turn) for who in range(count) for turn in range(turns)
    )
    numbers = {(who, turn): number for number, (_, who, turn) in enumerate(moments)}
    found = []
    for number, (at_s, who, turn) in enumerate(moments):
        ids = np.array([7, *(100 * (who + 1) + np.arange(turn + 1))], dtype=np.uint64)
        found.append(
            Request(
                number=number,
                at_s=at_s,
                prompt=BlockPrompt(ids, 512 * len(ids), 512),
                output_tokens=10,
                after=numbers[who, turn - 1] if turn else None,
                pause_s=3.0 if turn else 0.0,
            )
        )
    return found


def first_own_block(one: Request) -> int:
    assert isinstance(one.prompt, BlockPrompt)
    return int(one.prompt.ids[1])


def test_a_short_trace_is_divided_by_conversations() -> None:
    trace = chats(count=60, turns=5, hours=6)
    parts = divided(trace, seed=0, most=ALL)
    own = [{first_own_block(one) for one in part} for part in (parts.whole, parts.other)]
    originals = {first_own_block(one) for one in trace}
    assert not own[0] & own[1]
    assert originals <= own[0] | own[1]
    assert len(own[0] | own[1]) == 2 * len(originals), "each is also played as another one"


def test_each_part_knows_where_in_the_trace_it_begins() -> None:
    days = divided(chats(count=50, turns=8, hours=24 * 3), seed=3, most=ALL)
    assert days.tried.begins_s == days.searched.begins_s == (0.0,)
    assert days.judged.begins_s == (2 * DAY_S,)
    short = divided(chats(count=60, turns=5, hours=6), seed=0, most=ALL)
    assert short.judged.begins_s == (0.0,)


def test_the_parts_have_the_load_of_the_whole_and_its_hours() -> None:
    trace = chats(count=400, turns=2, hours=6)
    parts = divided(trace, seed=0, most=ALL)
    for part in (parts.whole, parts.other):
        assert len(part) == pytest.approx(len(trace), rel=0.15)
        assert part[-1].at_s == pytest.approx(trace[-1].at_s + SHIFT_S, abs=600)


def test_what_all_begin_with_is_shared_with_the_second_pass() -> None:
    parts = divided(chats(count=60, turns=5, hours=6), seed=0, most=ALL)
    for part in (parts.whole, parts.other):
        blocks = {int(one.prompt.ids[0]) for one in part if isinstance(one.prompt, BlockPrompt)}
        assert blocks == {7}


@pytest.mark.parametrize("days", [0.25, 4.0])
def test_each_part_is_a_trace_of_its_own(days: float) -> None:
    parts = divided(chats(count=50, turns=8, hours=24 * days), seed=3, most=ALL)
    for part in (parts.whole, parts.other):
        assert [one.number for one in part] == list(range(len(part)))
        times = [one.at_s for one in part]
        assert times == sorted(times)
        for one in part:
            if one.after is not None:
                assert one.after < one.number
                assert first_own_block(part[one.after]) == first_own_block(one)


def test_days_are_divided_at_midnight() -> None:
    trace = chats(count=50, turns=8, hours=24 * 4)
    parts = divided(trace, seed=0, most=ALL)
    assert parts.how == "by days: the first 2 to search, the other 2 to judge"
    assert len(parts.whole) + len(parts.other) == len(trace)
    first = next(one for one in trace if one.at_s >= 2 * DAY_S)
    assert parts.other[0].at_s == first.at_s - 2 * DAY_S


def test_requests_that_share_nothing_are_divided_one_by_one() -> None:
    trace = [
        replace(one, prompt=UniquePrompt(one.number, 100), after=None)
        for one in chats(count=700, turns=2, hours=6)
    ]
    parts = divided(trace, seed=0, most=ALL)
    assert len(parts.whole) == pytest.approx(1400, rel=0.15)
    assert parts.too_short == ""


def test_a_trace_that_is_too_short_says_so() -> None:
    assert "few" not in divided(chats(20, 5, hours=6), 0, ALL).too_short
    assert "99th percentile" in divided(chats(20, 5, hours=6), 0, ALL).too_short
    assert "lasts 29 min" in divided(chats(600, 5, hours=0.49), 0, ALL).too_short


def test_a_part_that_judges_is_an_excerpt_if_it_is_as_long_as_that() -> None:
    trace = chats(count=2000, turns=2, hours=20)
    parts = divided(trace, seed=0, most=250)
    assert 0.6 * 250 < len(parts.tried.requests) <= 250
    for stretches, part in ((parts.searched, parts.whole), (parts.judged, parts.other)):
        assert len(part) == pytest.approx(len(trace), rel=0.15)
        assert len(stretches.requests) == pytest.approx(LONGER * 250, rel=0.3)
    short = divided(trace, seed=0, most=1500)
    assert short.judged.requests == short.other
