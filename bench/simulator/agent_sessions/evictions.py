"""What it would be worth to evict what is least likely to be asked for again, not what was used
least recently.

Run: python -m bench.simulator.agent_sessions.evictions TRACE. Sessions are played at the pace at
which they were recorded, so many at once, a new one for each that ends, on one memory of so many
tokens. What does not fit is evicted from the ends of conversations whose session pauses, or has
ended, which nobody knows. Compared are the orders of `orders`; `worth` has its curve from the very
pauses that it is judged by, which is better than anything that learns. Printed is which share of
prompt tokens is found, and which share of the work on prompts that saves.
"""

import argparse
import gzip
import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, pairwise, takewhile
from math import inf
from pathlib import Path

from bench.simulator.agent_sessions.pauses import Call, pause_s, pauses_of, returning
from bench.simulator.agent_sessions.plays import CONTEXT_TOKENS

DOUBLING_TOKENS = 15_000  # with so much context a token takes twice as long to compute
STAY_S = 100.0  # how long memory lasts that nobody asks for


@dataclass(slots=True, eq=False)
class Conversation:
    """A session, as its memory sees it."""

    calls: Iterator[tuple[Call, float]]  # and the pause after each
    held: int = 0  # tokens
    since_s: float = 0.0  # when its last answer ended
    back_s: float = inf  # when it returns
    ended_by: str = "unknown"


Order = Callable[[Conversation, float], float]
"""The conversation with the least is evicted first; of it and the time."""


def orders(trace: Path) -> dict[str, Order]:
    curves = {ended: sorted(pauses) for ended, pauses in pauses_of(trace).items()}

    def returns(one: Conversation, now_s: float) -> float:
        return returning(curves[one.ended_by], now_s - one.since_s, STAY_S)

    return {
        "lru": lambda one, now_s: one.since_s,
        "probability": returns,
        "worth": lambda one, now_s: returns(one, now_s) * (1 + one.held / DOUBLING_TOKENS),
        "known before": lambda one, now_s: -one.back_s,
    }


def conversations(trace: Path) -> list[list[tuple[Call, float]]]:
    found = []
    with gzip.open(trace, "rt") as lines:
        for line in lines:
            every = (each for each in json.loads(line)["requests"] if "in" in each)
            calls = list(takewhile(lambda call: call["in"] <= CONTEXT_TOKENS, every))
            if calls:
                pauses = [*(pause_s(*pair) for pair in pairwise(calls)), inf]
                found.append(list(zip(calls, pauses, strict=True)))
    return found


class Memory:
    """What conversations hold, and what of their calls is found."""

    def __init__(self, room: int, order: Order) -> None:
        self._room = room
        self._order = order
        self._filled = 0
        self._held: dict[Conversation, None] = {}
        self.asked = self.found = 0  # tokens
        self.whole_work = self.saved_work = 0.0  # in tokens at the start of a prompt

    def call(self, one: Conversation, prompt: int, answer: int, now_s: float) -> None:
        found = min(one.held, prompt)
        self.asked, self.found = self.asked + prompt, self.found + found
        self.whole_work += _work(prompt)
        self.saved_work += _work(found)
        self._filled += prompt + answer - one.held
        one.held = prompt + answer
        self._held[one] = None
        while self._filled > self._room:
            idle = [each for each in self._held if each.since_s <= now_s and each is not one]
            if not idle:
                return
            victim = min(idle, key=lambda each: self._order(each, now_s))
            gone = min(victim.held, self._filled - self._room)
            victim.held, self._filled = victim.held - gone, self._filled - gone
            if not victim.held:
                del self._held[victim]


def _work(tokens: int) -> float:
    return tokens * (1 + tokens / 2 / DOUBLING_TOKENS)


def play(
    sessions: list[list[tuple[Call, float]]], at_once: int, memory: Memory, until_s: float
) -> None:
    begin = cycle(sessions)
    turns = [(0.0, number, Conversation(iter(next(begin)))) for number in range(at_once)]
    while turns[0][0] < until_s:
        now_s, number, one = heapq.heappop(turns)
        turn = next(one.calls, None)
        if turn is None:  # it has ended
            one = Conversation(iter(next(begin)))
            turn = next(one.calls)
        call, pause = turn
        memory.call(one, call["in"], call["out"], now_s)
        one.since_s = now_s + (call["api_time"] or 0.0)
        one.back_s, one.ended_by = one.since_s + pause, call.get("stop") or "unknown"
        heapq.heappush(turns, (one.since_s if pause == inf else one.back_s, number, one))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path, help="such as agent_sessions.jsonl.gz")
    parser.add_argument("--room", type=int, default=6_000_000, help="tokens; default: %(default)s")
    parser.add_argument("--hours", type=float, default=4.0, help="default: %(default)s")
    options = parser.parse_args()
    sessions, rules = conversations(options.trace), orders(options.trace)
    print("sessions  " + "  ".join(f"{name:>13}" for name in rules))
    for at_once in (40, 80, 160, 320):
        cells = []
        for rule in rules.values():
            memory = Memory(options.room, rule)
            play(sessions, at_once, memory, 3600 * options.hours)
            found, saved = memory.found / memory.asked, memory.saved_work / memory.whole_work
            cells.append(f"{found:.3f} / {saved:.3f}")
        print(f"{at_once:>8}  " + "  ".join(f"{cell:>13}" for cell in cells))


if __name__ == "__main__":
    main()
