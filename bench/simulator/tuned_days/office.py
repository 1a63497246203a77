"""Days of an office: hours that repeat, but for some minutes, and replicas that take minutes to
start.

Few requests come at night. Work begins at 9:00, and again after lunch, at once; a job of the night,
at 2:00, sends more than twice as many as the day for ten minutes. Two bursts a day come at any
time.
"""

import random
from datetime import UTC, datetime
from pathlib import Path

from bench.simulator.scaling_days.loads import (
    ANSWER_TOKENS,
    ANSWERS_CHUNK,
    ANSWERS_MODEL,
    PROMPT_TOKENS,
    SIGMA,
    Line,
    Load,
    write,
)

BEGAN = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday
START_S = 240.0  # of a replica

# A third of the replicas of the load `answers`, so that a day has several of them.
ROOM, REQUESTS = 10_922, 4

HOUR_S, MINUTE_S, DAY_S = 3600.0, 60.0, 86_400.0
NIGHT, EVENING, LUNCH, WORK, JOB = 0.02, 0.05, 0.12, 0.25, 0.6  # requests a second
JITTER_S = 120.0
BURSTS, BURST_S, BURST_FACTOR = 2, 300.0, 2.0

Hours = list[tuple[float, float]]
"""From a second of the day on, requests a second; in order."""


def office(days: int, folder: Path) -> Load:
    draw = random.Random(days)
    rows: list[Line] = []
    for day in range(days):
        midnight_s = BEGAN.timestamp() + day * DAY_S
        rates, bursts = _hours(draw), [draw.uniform(0, DAY_S) for _ in range(BURSTS)]
        at_s = 0.0
        # Arrivals at the highest rate, of which a share is kept: a Poisson process of any rate.
        most = JOB * BURST_FACTOR
        while (at_s := at_s + draw.expovariate(most)) < DAY_S:
            rate = next(rate for from_s, rate in reversed(rates) if from_s <= at_s)
            if any(0 <= at_s - burst_s < BURST_S for burst_s in bursts):
                rate *= BURST_FACTOR
            if draw.random() * most < rate:
                rows.append(_request(draw, midnight_s + at_s))
    return Load(
        name=f"office, {days} days",
        day=0,
        trace=write(rows, folder / f"office-{days}.jsonl.gz"),
        cost_model=ANSWERS_MODEL,
        capacity_tokens=ROOM,
        chunk_tokens=ANSWERS_CHUNK,
        most_requests=REQUESTS,
        engine={"radix_cache": False},
        knobs={},
    )


def _hours(draw: random.Random) -> Hours:
    plain = [
        (0.0, NIGHT),
        (2 * HOUR_S, JOB),
        (2 * HOUR_S + 10 * MINUTE_S, NIGHT),
        (7 * HOUR_S, EVENING),
        (9 * HOUR_S, WORK),
        (12 * HOUR_S, LUNCH),
        (13 * HOUR_S, WORK),
        (18 * HOUR_S, EVENING),
        (22 * HOUR_S, NIGHT),
    ]
    first, *others = plain
    return [first, *((at_s + draw.uniform(-JITTER_S, JITTER_S), rate) for at_s, rate in others)]


def _request(draw: random.Random, at_s: float) -> Line:
    prompt, answer = (
        round(draw.lognormvariate(0.0, SIGMA) * median) for median in (PROMPT_TOKENS, ANSWER_TOKENS)
    )
    return {"timestamp": round(1000 * at_s), "input_length": prompt, "output_length": answer}
