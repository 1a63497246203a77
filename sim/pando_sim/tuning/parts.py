"""Divides a trace: candidates are searched on one part of it and judged on the other.

If a part is long, candidates are tried on an excerpt of it, and the best ones are played again on a
longer excerpt (successive halving). What is recommended is judged on the other part, or on an
excerpt of it that is as long as the longer one.

A trace of two days or more is divided by days. A shorter one is divided by conversations: each
belongs to one part, and each part is played twice, the second time as other conversations and
`SHIFT_S` later, so that it has about as many requests a second, and the same hours, as the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import merge
from operator import itemgetter
from typing import cast

from xxhash import xxh3_64_intdigest

from pando_sim.request import Request
from pando_sim.traces.lasting import Lasting
from pando_sim.traces.prompts import TracePrompt
from pando_sim.tuning.excerpt import Excerpt, excerpt

DAY_S = 86_400.0
SHIFT_S = 45.0
LEAST_REQUESTS = 1000  # of a part: 1 % of them are ten
LEAST_S = 3600.0
LONGER = 3
"""So many times as many requests as the shorter excerpt has the longer one."""


class Stage(StrEnum):
    """On which requests a run is."""

    TRIED = "tried"  # all candidates
    SEARCHED = "searched"  # the best ones; the same requests if the part is short
    JUDGED = "judged"  # on the other part


@dataclass(frozen=True, slots=True)
class Parts:
    how: str  # it was divided, as the end of a sentence
    whole: list[Request]  # the part to search on
    other: list[Request]  # the part to judge on
    tried: Excerpt  # of the first part, like the next one
    searched: Excerpt
    judged: Excerpt  # of the other part

    @property
    def has_excerpt(self) -> bool:
        return len(self.tried.requests) < len(self.whole)

    def of(self, stage: Stage) -> Excerpt:
        match stage:
            case Stage.TRIED:
                return self.tried
            case Stage.SEARCHED:
                return self.searched
            case Stage.JUDGED:
                return self.judged

    @property
    def too_short(self) -> str:
        """Why nothing can be said from it; empty if something can."""
        few = min(len(self.whole), len(self.other))
        last_s = min(self.whole[-1].at_s, self.other[-1].at_s) if few else 0.0
        if few < LEAST_REQUESTS:
            return (
                f"the smaller part of the trace has {few:,} requests: the 99th percentile is"
                f" decided by {few // 100}; {LEAST_REQUESTS:,} are the least"
            )
        if last_s < LEAST_S:
            return (
                f"the trace lasts {last_s / 60:.0f} min: scaling waits and starts take minutes, so"
                f" {LEAST_S / 60:.0f} min are the least"
            )
        return ""


def divided(requests: Sequence[Request], seed: int, most: int) -> Parts:
    """
    Args:
        requests: a whole trace, in order, with numbers from 0.
        most: about as many requests has the excerpt on which candidates are tried.
    """
    days = int(requests[-1].at_s // DAY_S) + 1 if requests else 0
    if days >= 2:
        cut = max(1, days * 2 // 3)
        first = [one for one in requests if one.at_s < cut * DAY_S]
        rest = [one for one in requests if one.at_s >= cut * DAY_S]
        how = f"by days: the first {cut} to search, the other {days - cut} to judge"
        cut_s = cut * DAY_S
        return _parts(how, _renumbered(first, 0.0), _renumbered(rest, cut_s), most, cut_s)
    lasting = _lasting(requests)
    folds = _folds(requests, lasting, seed)
    parts = [[one for one, fold in zip(requests, folds, strict=True) if fold == n] for n in (0, 1)]
    how = "by conversations: half of them to search, half to judge, each half played twice"
    searched, judged = (_twice(part, lasting) for part in parts)
    return _parts(how, searched, judged, most, 0.0)


def _parts(
    how: str, whole: list[Request], other: list[Request], most: int, other_begin_s: float
) -> Parts:
    longer = LONGER * most
    tried, searched = excerpt(whole, most), excerpt(whole, longer)
    return Parts(how, whole, other, tried, searched, excerpt(other, longer, other_begin_s))


def _lasting(requests: Sequence[Request]) -> Lasting:
    lasting = Lasting()
    for one in requests:
        lasting.add(_prompt(one).path(), one.at_s)
    lasting.end(requests[-1].at_s if requests else 0.0)
    return lasting


def _folds(requests: Sequence[Request], lasting: Lasting, seed: int) -> list[int]:
    """0 or 1 for each request; the same for all of a conversation."""
    names = list[str]()
    for one in requests:
        path = _prompt(one).path()
        kept = lasting.kept(path)
        if one.after is not None:
            names.append(names[one.after])
        elif one.session:
            names.append(one.session)
        elif kept < len(path):
            names.append(str(path[kept]))  # where it leaves what all begin with
        else:
            names.append(f"request {one.number}")
    return [xxh3_64_intdigest(name.encode(), seed & 2**64 - 1) & 1 for name in names]


def _twice(part: Sequence[Request], lasting: Lasting) -> list[Request]:
    """The part, and again as other conversations."""
    again = (
        replace(
            one,
            at_s=one.at_s + SHIFT_S,
            prompt=_prompt(one).renewed(lasting.kept(_prompt(one).path()), 1),
            session=f"{one.session}/1" if one.session else "",
        )
        for one in part
    )
    both = merge(
        ((one.at_s, 0, one) for one in part),
        ((one.at_s, 1, one) for one in again),
        key=itemgetter(0),
    )
    numbers: dict[tuple[int, int], int] = {}  # old number and pass: new number
    found = []
    for number, (_, turn, one) in enumerate(both):
        after = None if one.after is None else numbers[one.after, turn]
        numbers[one.number, turn] = number
        found.append(replace(one, number=number, after=after))
    return found


def _renumbered(part: Sequence[Request], from_s: float) -> list[Request]:
    """Numbers and times from 0 on. An answer of the other part is not waited for."""
    numbers = {one.number: number for number, one in enumerate(part)}
    return [
        replace(
            one,
            number=number,
            at_s=one.at_s - from_s,
            after=None if one.after is None else numbers.get(one.after),
        )
        for number, one in enumerate(part)
    ]


def _prompt(request: Request) -> TracePrompt:
    """All readers of traces make such prompts."""
    return cast(TracePrompt, request.prompt)
