"""What it is worth to know how a session's last answer ended, when its pause begins.

Run: python -m bench.simulator.agent_sessions.pauses TRACE. A session keeps its memory for a time
after each answer. A second of that costs 1 / stay, where the stay is the time in which the pool
computes all that it holds, and computing the conversation again costs 1. The last answer of a
session is followed by an endless pause. Compared are: to keep it for a stay, as the bound on
sessions does for calls that go on; for the one time that is best for the trace; for the best time
by how the answer ended; and for those pauses that are shorter than a stay, as if known before.
"""

import argparse
import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from math import inf
from pathlib import Path
from typing import Any

Call = dict[str, Any]

STAYS_S = (30.0, 60.0, 100.0, 200.0, 400.0)
PAUSED_S = (0, 10, 100, 400)
TIMES_S = (0.0, *(1.25**power for power in range(-4, 45)))


def pauses_of(trace: Path) -> dict[str, list[float]]:
    """Seconds, by how the answer before the pause ended."""
    found: dict[str, list[float]] = defaultdict(list)
    for call, after in _pairs(trace):
        found[call.get("stop") or "unknown"].append(pause_s(call, after))
    return found


def _pairs(trace: Path) -> Iterator[tuple[Call, Call | None]]:
    with gzip.open(trace, "rt") as lines:
        for line in lines:
            calls = [each for each in json.loads(line)["requests"] if "in" in each]
            yield from zip_longest(calls, calls[1:])


def pause_s(call: Call, after: Call | None) -> float:
    if after is None:
        return inf
    if after["think_time"] is not None:
        return float(after["think_time"])
    return max(0.0, float(after["t"] - call["t"] - (call["api_time"] or 0.0)))


def cost(pauses: Iterable[float], kept_s: float, stay_s: float) -> float:
    return sum(min(pause, kept_s) / stay_s + (pause > kept_s) for pause in pauses)


def least(pauses: Iterable[float], stay_s: float) -> float:
    return min(cost(pauses, kept_s, stay_s) for kept_s in TIMES_S)


def returning(ordered: Sequence[float], paused_s: float, within_s: float) -> float:
    """The share that ends within a time, of the pauses that are longer than `paused_s`."""
    gone, back = (bisect_right(ordered, until) for until in (paused_s, paused_s + within_s))
    return (back - gone) / max(1, len(ordered) - gone)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path, help="such as agent_sessions.jsonl.gz")
    found = pauses_of(parser.parse_args().trace)
    every = [pause for pauses in found.values() for pause in pauses]
    for ended, pauses in sorted(found.items(), key=lambda item: -len(item[1])):
        ordered = sorted(pauses)
        middle, late = (ordered[int(share * len(ordered))] for share in (0.5, 0.9))
        print(f"{ended}: {len(pauses):,} pauses, half of them to {middle:g} s, 90 % to {late:g} s")
        shares = ", ".join(f"{returning(ordered, paused_s, 100):.0%}" for paused_s in PAUSED_S)
        print(f"  back within 100 s, after {PAUSED_S} s: {shares}")
    print("stay     for a stay  one best time  by how it ended  known before")
    for stay_s in STAYS_S:
        one, by_end = least(every, stay_s), sum(least(each, stay_s) for each in found.values())
        known = sum(min(pause / stay_s, 1) for pause in every)
        for_a_stay = cost(every, stay_s, stay_s)
        print(f"{stay_s:>4g} s {for_a_stay:>13,.0f} {one:>14,.0f} {by_end:>16,.0f} {known:>13,.0f}")


if __name__ == "__main__":
    main()
