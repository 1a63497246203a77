"""A whole file: window after window behind predicted time stamps; or cut in pauses, and then
several windows at once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pando_worker.audio.heard import Heard
from pando_worker.audio.pauses import SoundPiece
from pando_worker.audio.segments import Segment, cut
from pando_worker.audio.tokens import SpeechTokens
from pando_worker.server.speech.windows import Decoded, WindowDecoder

AT_ONCE = 8
"""Pieces of one file that are in the engine at once."""


@dataclass(frozen=True, slots=True)
class HeardWindow:
    """
    Attributes:
        start: in frames
        count: frames of it that are not padding
    """

    start: int
    count: int
    decoded: Decoded
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """
    Attributes:
        window: frames that the model hears at once
        timestamps: whether the model predicts them
    """

    decoder: WindowDecoder
    tokens: SpeechTokens
    heard: Heard
    window: int
    prompt: list[int]
    timestamps: bool

    async def windows(self, pieces: Sequence[SoundPiece]) -> AsyncGenerator[HeardWindow, None]:
        """In the order of the file, each as soon as it and those before it are decoded. Closing the
        generator aborts what runs.

        Raises:
            ApiError: as `WindowDecoder.decoded` does.
        """
        if len(pieces) == 1:
            async with aclosing(self._piece(pieces[0])) as windows:
                async for window in windows:
                    yield window
            return
        slots = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(self._whole(piece, slots)) for piece in pieces]
        try:
            for task in tasks:
                for window in await task:
                    yield window
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _whole(self, piece: SoundPiece, slots: asyncio.Semaphore) -> list[HeardWindow]:
        async with slots:
            return [window async for window in self._piece(piece)]

    async def _piece(self, piece: SoundPiece) -> AsyncGenerator[HeardWindow, None]:
        start = piece.start
        while start < piece.end:
            count = min(self.window, piece.end - start)
            decoded = await self.decoder.decoded(
                start, count, self.prompt, timestamps=self.timestamps
            )
            if decoded is None:
                start += count
                continue
            found = cut(decoded.tokens, start, count, self.tokens.first_timestamp)
            yield HeardWindow(start, count, decoded, found.segments)
            start += found.advance or count  # a pair at 0.00 s would not go on
