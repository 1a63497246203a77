"""An excerpt of a part of a trace: stretches of its quiet and busy times, one after the other.

A run of it takes a fraction of the time and has the load of the whole in its proportions. But the
load jumps from one stretch to the next, so its numbers are estimates: they only choose what is
played further.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pando_sim.request import Request

STRETCHES = 6
SHORTEST_S, LONGEST_S = 600.0, 3600.0
"""Of a stretch: a pool needs minutes to follow a load."""


def excerpt(requests: Sequence[Request], most: int) -> list[Request]:
    """About `most` of the requests, with numbers and times from 0 on; all of them if there are not
    more. An answer outside of the excerpt is not waited for.

    `requests`: in order, with times from 0 on.
    """
    share = most / max(1, len(requests))
    if share >= 1:
        return list(requests)
    end_s = requests[-1].at_s
    stretch_s = min(max(end_s * share / STRETCHES, SHORTEST_S), LONGEST_S)
    chosen = _stretches([one.at_s for one in requests], stretch_s, share)
    places = {stretch: place for place, stretch in enumerate(chosen)}
    numbers: dict[int, int] = {}
    found: list[Request] = []
    for one in requests:
        stretch = int(one.at_s // stretch_s)
        if stretch not in places:
            continue
        after = None if one.after is None else numbers.get(one.after)
        at_s = one.at_s + (places[stretch] - stretch) * stretch_s
        at_s = max(at_s, found[-1].at_s if found else 0.0)  # sums are rounded
        numbers[one.number] = len(found)
        found.append(replace(one, number=len(found), at_s=at_s, after=after))
    return found


def _stretches(times: Sequence[float], stretch_s: float, share: float) -> list[int]:
    """Numbers of stretches, in order: evenly spread over all of them ordered by their load."""
    loads = np.bincount((np.array(times) // stretch_s).astype(np.int64))
    count = min(len(loads), max(2, round(len(loads) * share)))
    by_load = np.argsort(loads, kind="stable")
    places = (np.arange(count) + 0.5) * len(loads) / count
    return sorted(by_load[places.astype(np.int64)].tolist())
