"""One window of a file through the engine: detected language, and decoded tokens."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pando_worker.audio.fallback import (
    TEMPERATURES,
    DecodingVerdict,
    Quality,
    compression_of,
)
from pando_worker.audio.heard import Heard
from pando_worker.audio.tokens import SpeechTokens
from pando_worker.messages import (
    FinishReason,
    Generate,
    LogprobsWanted,
    Output,
    Probe,
    SamplingParams,
    Source,
    SpeechRules,
)
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import aborted
from pando_worker.server.hearing import Hearing
from pando_worker.server.images import sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose windows these are, for the engine."""

    rid: str
    namespace: bytes
    deadline_s: float | None


def silence(hearing: Hearing) -> Source:
    """A window in which nothing is heard."""
    window = np.zeros((hearing.mel_bins, 2 * hearing.positions), np.float32)
    return Source(digest=bytes(16), length=hearing.positions, array=sent(window))


@dataclass(frozen=True, slots=True)
class Decoded:
    """
    Attributes:
        prompt: the decoder's
        tokens: without the end token
        has_ended: whether that came, before there was no room for further tokens
    """

    prompt: list[int]
    tokens: list[int]
    temperature: float
    quality: Quality
    has_ended: bool


class WindowDecoder:
    """Decodes windows of one file."""

    def __init__(
        self,
        engine: EngineClient,
        caller: Caller,
        tokens: SpeechTokens,
        heard: Heard,
        *,
        positions: int,
        temperature: float,
    ) -> None:
        """
        Args:
            positions: that the encoder makes of a window
            temperature: above 0, the only one
        """
        self._engine, self._caller, self._tokens = engine, caller, tokens
        self._heard, self._positions = heard, positions
        self._temperatures: Sequence[float] = (temperature,) if temperature else TEMPERATURES
        self._was_cached: dict[bytes, bool] = {}  # by the window's digest, at its first use

    @property
    def cached_share(self) -> float:
        """The part of the windows so far whose encodings were in the engine's cache."""
        return sum(self._was_cached.values()) / max(1, len(self._was_cached))

    async def language(self, start: int, count: int) -> str:
        """The code of the likeliest language of a window, for a model that knows several.

        Raises:
            ApiError: as `EngineClient.call` does.
        """
        codes = list(self._tokens.languages)
        order = self._order(
            self.source(start, count),
            [self._tokens.start],
            SamplingParams(max_new_tokens=1),
            Probe(position=0, token_ids=tuple(self._tokens.languages.values())),
        )
        outputs = await self._run(order)
        probed = outputs[0].probed
        return codes[max(range(len(codes)), key=probed.__getitem__)]

    async def decoded(
        self, start: int, count: int, prompt: list[int], *, timestamps: bool
    ) -> Decoded | None:
        """What is said in a window; None if nothing is.

        Raises:
            ApiError: as `EngineClient.call` does; 409 after an abort.
        """
        source = self.source(start, count)
        for attempt, temperature in enumerate(self._temperatures):
            found = await self._attempt(source, prompt, temperature, timestamps=timestamps)
            verdict = found.quality.verdict
            if verdict is DecodingVerdict.SILENT:
                return None
            if verdict is DecodingVerdict.GOOD or attempt == len(self._temperatures) - 1:
                return found
        raise AssertionError("the last temperature is taken as it comes")

    def source(self, start: int, count: int) -> Source:
        window = self._heard.window(start, count, 2 * self._positions)
        digest = self._heard.window_digest(start, count)
        return Source(digest=digest, length=self._positions, array=sent(window))

    async def _attempt(
        self, source: Source, prompt: list[int], temperature: float, *, timestamps: bool
    ) -> Decoded:
        known = self._tokens
        suppressed = (*known.suppressed, known.no_timestamps) if timestamps else known.suppressed
        rules = SpeechRules(
            end_token=known.end,
            suppressed=suppressed,
            suppressed_first=known.suppressed_first,
            first_timestamp=known.first_timestamp if timestamps else None,
            max_initial=known.max_initial,
        )
        sampling = SamplingParams(
            max_new_tokens=known.most - len(prompt),
            temperature=temperature,
            seed=random.getrandbits(63),
            stop_token_ids=(known.end,),
        )
        probe = Probe(position=prompt.index(known.start), token_ids=(known.no_speech,))
        outputs = await self._run(self._order(source, prompt, sampling, probe, rules))
        tokens = [token for output in outputs for token in output.token_ids]
        scores = [score.logprob for output in outputs for score in output.logprobs]
        quality = Quality(
            compression=compression_of(tokens, known.vocab_size),
            logprob=sum(scores) / len(scores),
            no_speech=math.exp(outputs[0].probed[0]),
        )
        if has_ended := tokens[-1] == known.end:
            tokens.pop()
        return Decoded(prompt, tokens, temperature, quality, has_ended)

    def _order(
        self,
        source: Source,
        prompt: list[int],
        sampling: SamplingParams,
        probe: Probe,
        rules: SpeechRules | None = None,
    ) -> Generate:
        return Generate(
            rid=self._caller.rid,
            input_ids=prompt,
            sampling=sampling,
            logprobs=LogprobsWanted() if rules else None,
            namespace=self._caller.namespace,
            deadline_s=self._caller.deadline_s,
            source=source,
            rules=rules,
            probe=probe,
        )

    async def _run(self, order: Generate) -> list[Output]:
        with self._engine.call([order]) as call:
            outputs = [output async for _, output in call.outputs()]
        if outputs[-1].finish is FinishReason.ABORT:
            raise aborted()
        assert order.source is not None
        self._was_cached.setdefault(order.source.digest, outputs[0].is_source_cached)
        return outputs
