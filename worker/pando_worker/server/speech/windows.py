"""One window of a file through the engine: detected language, and decoded tokens."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pando_worker.audio.drafts import Question
from pando_worker.audio.fallback import (
    TEMPERATURES,
    DecodingVerdict,
    Quality,
    compression_of,
)
from pando_worker.audio.heard import Heard
from pando_worker.messages import (
    FinishReason,
    Generate,
    LogprobsWanted,
    Output,
    Probe,
    SamplingParams,
    Source,
    SpeechRules,
    Verify,
)
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import aborted
from pando_worker.server.hearing import Hearing
from pando_worker.server.images import sent
from pando_worker.server.speech.timing import SpeechTimes


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
        hearing: Hearing,
        heard: Heard,
        times: SpeechTimes,
        *,
        temperature: float,
    ) -> None:
        """
        Args:
            temperature: above 0, the only one
        """
        self._engine, self._caller, self._tokens = engine, caller, hearing.tokens
        self._drafts, self._times = hearing.drafts, times
        self._heard, self._positions = heard, hearing.positions
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
            if temperature:
                found = await self._attempt(source, prompt, temperature, timestamps=timestamps)
            else:
                found = await self._likeliest(source, prompt, timestamps=timestamps)
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

    async def _likeliest(self, source: Source, prompt: list[int], *, timestamps: bool) -> Decoded:
        """At temperature 0: the answer to an equal window if the engine confirms it."""
        asked = Question(self._caller.namespace, source.digest, tuple(prompt), timestamps)
        draft = self._drafts.get(asked)
        if draft is not None:
            found = await self._verified(source, prompt, draft, timestamps=timestamps)
            self._times.verified(confirmed=found is not None)
            if found is not None:
                return found
        found = await self._attempt(source, prompt, 0.0, timestamps=timestamps)
        self._drafts.put(asked, [*found.tokens, *[self._tokens.end] * found.has_ended])
        return found

    async def _verified(
        self, source: Source, prompt: list[int], draft: list[int], *, timestamps: bool
    ) -> Decoded | None:
        """None if the model chooses another token anywhere."""
        order = Verify(
            rid=self._caller.rid,
            input_ids=[*prompt, *draft[:-1]],
            first=len(prompt),
            source=source,
            rules=self._rules(timestamps=timestamps),
            probe=self._no_speech(prompt),
            namespace=self._caller.namespace,
            deadline_s=self._caller.deadline_s,
        )
        answer = await self._engine.verify(order)
        self._times.waited(answer.queue_s)
        self._was_cached.setdefault(source.digest, answer.is_source_cached)
        if answer.choices != draft:
            return None
        self._times.came(len(draft), None)
        return self._decoded(prompt, draft, answer.logprobs, answer.probed, 0.0)

    async def _attempt(
        self, source: Source, prompt: list[int], temperature: float, *, timestamps: bool
    ) -> Decoded:
        sampling = SamplingParams(
            max_new_tokens=self._tokens.most - len(prompt),
            temperature=temperature,
            seed=random.getrandbits(63),
            stop_token_ids=(self._tokens.end,),
        )
        rules, probe = self._rules(timestamps=timestamps), self._no_speech(prompt)
        outputs = await self._run(self._order(source, prompt, sampling, probe, rules))
        tokens = [token for output in outputs for token in output.token_ids]
        scores = [score.logprob for output in outputs for score in output.logprobs]
        return self._decoded(prompt, tokens, scores, outputs[0].probed, temperature)

    def _decoded(
        self,
        prompt: list[int],
        tokens: list[int],
        scores: Sequence[float],
        probed: Sequence[float],
        temperature: float,
    ) -> Decoded:
        """
        Args:
            tokens: with the end token, if that came
            scores: their log-probabilities
        """
        quality = Quality(
            compression=compression_of(tokens, self._tokens.vocab_size),
            logprob=sum(scores) / len(scores),
            no_speech=math.exp(probed[0]),
        )
        has_ended = tokens[-1] == self._tokens.end
        text = tokens[:-1] if has_ended else tokens
        return Decoded(prompt, text, temperature, quality, has_ended)

    def _rules(self, *, timestamps: bool) -> SpeechRules:
        known = self._tokens
        suppressed = (*known.suppressed, known.no_timestamps) if timestamps else known.suppressed
        return SpeechRules(
            end_token=known.end,
            suppressed=suppressed,
            suppressed_first=known.suppressed_first,
            first_timestamp=known.first_timestamp if timestamps else None,
            max_initial=known.max_initial,
        )

    def _no_speech(self, prompt: list[int]) -> Probe:
        """Asks how likely it is that nothing is said."""
        at = prompt.index(self._tokens.start)
        return Probe(position=at, token_ids=(self._tokens.no_speech,))

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
        outputs: list[Output] = []
        came: float | None = None
        with self._engine.call([order]) as call:
            async for _, output in call.outputs():
                outputs.append(output)
                if order.rules and output.token_ids:  # the others detect a language
                    came = self._times.came(len(output.token_ids), came)
        if outputs[-1].finish is FinishReason.ABORT:
            raise aborted()
        assert order.source is not None
        self._times.waited(outputs[0].queue_s or 0.0)
        self._was_cached.setdefault(order.source.digest, outputs[0].is_source_cached)
        return outputs
