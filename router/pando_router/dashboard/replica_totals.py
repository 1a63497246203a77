"""What replicas count themselves and send with heartbeats, summed over their restarts."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from pando_fleet.registry.replica import Heartbeat
from pando_router.dashboard.history import WINDOW


@dataclass(frozen=True, slots=True)
class Counts:
    """One replica's counters, or the sum of many."""

    gap_s: float = 0.0  # time between two tokens of a request, summed
    gaps: int = 0
    tokens_in: int = 0  # prompt tokens, cached ones included
    tokens_out: int = 0

    def plus_growth(self, before: "Counts", now: "Counts") -> "Counts":
        return Counts(
            self.gap_s + max(0.0, now.gap_s - before.gap_s),
            self.gaps + max(0, now.gaps - before.gaps),
            self.tokens_in + max(0, now.tokens_in - before.tokens_in),
            self.tokens_out + max(0, now.tokens_out - before.tokens_out),
        )


@dataclass(frozen=True, slots=True)
class ModelRates:
    tokens_in_per_s: float
    tokens_out_per_s: float


class ReplicaTotals:
    """`follow` adds what the replicas counted since the last call; a new one starts at zero."""

    def __init__(self) -> None:
        self.sum = Counts()
        self._known: dict[str, Counts] = {}  # by incarnation
        self._by_model: dict[str, Counts] = {}  # of the models that are served now
        self._past: deque[tuple[float, dict[str, Counts]]] = deque(maxlen=WINDOW + 1)

    def follow(self, at: float, beats: Iterable[Heartbeat]) -> None:
        """`at` is in seconds by any clock."""
        known, self._known = self._known, {}
        by_model: dict[str, Counts] = {}
        for beat in beats:
            now = _counts(beat)
            before = known.get(beat.incarnation, now)
            self._known[beat.incarnation] = now
            self.sum = self.sum.plus_growth(before, now)
            so_far = by_model.get(beat.model) or self._by_model.get(beat.model) or Counts()
            by_model[beat.model] = so_far.plus_growth(before, now)
        self._by_model = by_model
        self._past.append((at, by_model))

    def rates(self) -> dict[str, ModelRates]:
        """By model, over the last WINDOW seconds."""
        if not self._past:
            return {}
        then, before = self._past[0]
        elapsed_s = max(self._past[-1][0] - then, 1e-9)
        return {
            model: ModelRates(
                (now.tokens_in - before.get(model, now).tokens_in) / elapsed_s,
                (now.tokens_out - before.get(model, now).tokens_out) / elapsed_s,
            )
            for model, now in self._by_model.items()
        }


def _counts(beat: Heartbeat) -> Counts:
    return Counts(
        beat.inter_token_seconds_total,
        beat.inter_tokens_total,
        beat.prompt_tokens_total,
        beat.output_tokens_total,
    )
