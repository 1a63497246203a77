"""When each word of a window is spoken: the engine aligns tokens with sound by cross-attention."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np

from pando_worker.audio.alignment import token_times
from pando_worker.audio.tokens import SpeechTokens
from pando_worker.audio.words import words_of
from pando_worker.messages import Align
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.speech.answers import SpokenWord
from pando_worker.server.speech.listening import HeardWindow
from pando_worker.server.speech.windows import Caller, WindowDecoder
from pando_worker.tokenizer.detokenizer import Vocabulary

_FRAME_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class WordFinder:
    """
    Attributes:
        language: the code of that of the text
        frames: of the file that are no padding
        positions: that the encoder makes of a window
    """

    engine: EngineClient
    caller: Caller
    decoder: WindowDecoder
    tokens: SpeechTokens
    vocabulary: Vocabulary
    language: str
    frames: int
    positions: int

    async def words(self, window: HeardWindow) -> AsyncIterator[SpokenWord]:
        """
        Raises:
            ApiError: as `EngineClient.align` does.
        """
        times = await self._times(window)
        offset_s = window.start * _FRAME_S
        for segment in window.segments:
            text = [
                at for at, token in enumerate(segment.tokens, segment.first) if self._is_text(token)
            ]
            spoken = [window.decoded.tokens[at] for at in text]
            for word in words_of(spoken, self._decode, self.language):
                first, last = text[word.first], text[word.last]
                begin_s = offset_s + (times[first - 1] if first else 0.0)
                end_s = offset_s + times[last]
                yield SpokenWord(word.text.strip(), round(begin_s, 2), round(end_s, 2))

    async def _times(self, window: HeardWindow) -> list[float]:
        """Of each token, in seconds from the window's beginning."""
        prompt, tokens = window.decoded.prompt, window.decoded.tokens
        if not window.decoded.has_ended:
            tokens = tokens[:-1]  # the last one was not run, and ends with the one before
        if not any(map(self._is_text, tokens)):
            return [0.0] * len(window.decoded.tokens)
        positions = max(1, min(self.positions, (self.frames - window.start) // 2))
        aligned = await self.engine.align(
            Align(
                rid=self.caller.rid,
                input_ids=[*prompt, *tokens],
                first=len(prompt),
                source=self.decoder.source(window.start, window.count),
                positions=positions,
                namespace=self.caller.namespace,
                deadline_s=self.caller.deadline_s,
            )
        )
        weights = np.frombuffer(aligned.weights, "<f4").reshape(len(tokens), positions)
        return await asyncio.to_thread(token_times, weights)

    def _is_text(self, token: int) -> bool:
        return token < self.tokens.end

    def _decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self.vocabulary[token] for token in tokens).decode(errors="replace")
