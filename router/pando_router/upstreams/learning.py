"""Learns an upstream's speed from its answers.

During a time to first token the engine computes this prompt's uncached tokens and those of the
prompts before it, which all routers' leases count. So tokens over time is a sample of its prefill
rate even under queueing. Other clients and full batches make a sample too low, an earlier prompt
that was partly computed makes it too high. The median, weighted by tokens, is least affected.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter

from pando_fleet.redis.layout.rows import Candidate
from pando_fleet.registry.upstreams import NOTHING, Sampled
from pando_router.core.route import Route
from pando_router.exchange.exchange import Exchange, Listener
from pando_router.exchange.tail import Tail

SAMPLES = 64  # the latest
MEDIAN = 0.5
LEAST_PREFILL = 64  # tokens of a sample; with fewer, overhead dominates the time
LEAST_DECODE = 8  # tokens


class Rate:
    """The latest samples of a rate in tokens/s, each with its weight in tokens."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self._new = 0

    def add(self, tokens: float, seconds: float) -> None:
        if seconds > 0:
            self._samples.append((tokens / seconds, tokens))
            self._new += 1

    def take(self) -> Sampled:
        """The current rate, and the number of samples since the last call."""
        new, self._new = self._new, 0
        return Sampled(weighted_quantile(self._samples, MEDIAN), new) if new else NOTHING

    def put_back(self, taken: Sampled) -> None:
        """Nobody got what was taken: the next call counts its samples again."""
        self._new += taken.samples


def weighted_quantile(samples: Iterable[tuple[float, float]], quantile: float) -> float:
    """The smallest value with at least `quantile` of the weight at or below it.

    `samples` are pairs of value and weight.
    """
    ordered = sorted(samples)
    goal = quantile * sum(weight for _, weight in ordered)
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= goal:
            return value
    raise ValueError("a quantile needs at least one sample")


@dataclass(frozen=True, slots=True)
class Learned:
    """Rates, and the sums over so many answers of their prompts' bytes and tokens."""

    prefill: Sampled
    decode: Sampled
    bytes: int
    tokens: int
    answers: int

    @property
    def bytes_per_token(self) -> Sampled:
        if not self.tokens or not self.bytes:
            return NOTHING
        return Sampled(self.bytes / self.tokens, self.answers)


class Learner:
    """The measured speed of one upstream, for its next heartbeat."""

    def __init__(self) -> None:
        self.prefill = Rate()
        self.decode = Rate()
        self._bytes = 0
        self._tokens = 0
        self._answers = 0

    def prompt(self, size: int, tokens: int) -> None:
        """A prompt of `size` bytes had so many tokens."""
        self._bytes += size
        self._tokens += tokens
        self._answers += 1

    def take(self) -> Learned:
        """What was learned since the last call."""
        learned = Learned(
            self.prefill.take(), self.decode.take(), self._bytes, self._tokens, self._answers
        )
        self._bytes = self._tokens = self._answers = 0
        return learned

    def put_back(self, learned: Learned) -> None:
        """Redis did not get what was taken: the next call returns it again."""
        self.prefill.put_back(learned.prefill)
        self.decode.put_back(learned.decode)
        self._bytes += learned.bytes
        self._tokens += learned.tokens
        self._answers += learned.answers


class Learning(Listener):
    """Learns from the answers of upstreams."""

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        """`learners` are those of all upstreams, by URL."""
        self._learners = learners
        self._sent: dict[Exchange, tuple[Learner, float]] = {}  # its learner, and when it was sent

    def placed(self, exchange: Exchange, route: Route) -> None:
        learner = self._learners.get(route.url)
        # A continuation also has the lost answer's tokens to compute.
        if learner is not None and not exchange.lost:
            exchange.read_usage()
            self._sent[exchange] = learner, perf_counter()
        elif self._sent:
            self._sent.pop(exchange, None)

    def ended(self, exchange: Exchange) -> None:
        if not self._sent or (sent := self._sent.pop(exchange, None)) is None:
            return
        order, tail, route, ttfb_s = exchange.order, exchange.tail, exchange.route, exchange.ttfb_s
        if order is None or tail is None or route is None or ttfb_s is None:
            return
        request = order.prompt.request
        if not (exchange.is_complete and exchange.has_answer and request.computes):
            return
        learner, sent_at = sent
        usage = tail.usage()
        if (report := exchange.report) is not None:
            prompt_tokens: int | None = report.prompt_tokens
            cached: int | None = report.cached_tokens
        else:
            prompt_tokens = usage.prompt if usage else None
            cached = usage.cached if usage else None
        if prompt_tokens and not request.extra_bytes and not request.images:
            learner.prompt(request.prompt_bytes, prompt_tokens)
        if route.placement is not None:
            chosen = route.placement.chosen
            prompt = prompt_tokens or request.prompt_tokens(order.prompt.targets[0].bytes_per_token)
            held = chosen.matched_tokens if cached is None else cached
            first_at = exchange.started + ttfb_s
            _learn(learner, chosen, tail, max(0, prompt - held), sent_at, first_at)


def _learn(
    learner: Learner, chosen: Candidate, tail: Tail, uncached: int, sent_at: float, first_at: float
) -> None:
    """Adds samples of the rates.

    The first byte of an answer that is not a stream comes with its last token, so it measures the
    prompt only if the answer reports at most one token.
    """
    usage, events = tail.usage(), tail.events
    output = usage.output if usage is not None and usage.output is not None else events
    if events > 1 or (usage is not None and output <= 1):
        tokens = uncached + chosen.backlog_tokens
        if tokens >= LEAST_PREFILL:
            learner.prefill.add(tokens, first_at - sent_at)
    if events > 1 and output > LEAST_DECODE:
        # All requests there share its steps, so the upstream's rate is the sum of theirs.
        together = chosen.outstanding + 1
        learner.decode.add((output - 1) * together, perf_counter() - first_at)
