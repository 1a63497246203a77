"""Transcriptions in OpenAI's forms: whole, or as the events of a stream."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pando_worker.audio.languages import LANGUAGES
from pando_worker.audio.segments import Segment
from pando_worker.server.errors import ApiError
from pando_worker.server.protocol.speech import Granularity, SpeechFormat, SpeechRequest
from pando_worker.server.speech.listening import HeardWindow
from pando_worker.server.speech.subtitles import srt, vtt
from pando_worker.tokenizer.detokenizer import Detokenizer, Vocabulary


class SpeechSegment(msgspec.Struct, frozen=True):
    id: int
    seek: int  # of its window, in frames of 0.01 s
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class SpokenWord(msgspec.Struct, frozen=True):
    word: str
    start: float
    end: float


class _InputDetails(msgspec.Struct, frozen=True):
    audio_tokens: int
    text_tokens: int


class _TokenUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_token_details: _InputDetails
    type: Literal["tokens"] = "tokens"


class _DurationUsage(msgspec.Struct, frozen=True):
    seconds: float
    type: Literal["duration"] = "duration"


class _Transcription(msgspec.Struct, frozen=True):
    text: str
    usage: _TokenUsage


class _Verbose(msgspec.Struct, frozen=True, kw_only=True):
    task: str
    language: str
    duration: float
    text: str
    segments: list[SpeechSegment] | UnsetType
    words: list[SpokenWord] | UnsetType
    usage: _DurationUsage


class _TextDelta(msgspec.Struct, frozen=True):
    delta: str
    type: Literal["transcript.text.delta"] = "transcript.text.delta"


class _TextDone(msgspec.Struct, frozen=True):
    text: str
    usage: _TokenUsage
    type: Literal["transcript.text.done"] = "transcript.text.done"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenFile:
    """What an answer says of the whole file.

    Attributes:
        language: the code of that of the text
        audio_tokens: positions that the encoder makes of it
    """

    request: SpeechRequest
    language: str
    seconds: float
    audio_tokens: int


class Transcript:
    """Segments as they are decoded, and their text.

    Attributes:
        text: without the spaces around it; a character may begin in one segment and end in the next
    """

    def __init__(self, vocabulary: Vocabulary, end_token: int) -> None:
        self._vocabulary, self._end_token = vocabulary, end_token
        self._detokenizer = Detokenizer(vocabulary)
        self._space = ""  # at the end of the text so far, which is kept back
        self.text = ""
        self.segments: list[SpeechSegment] = []
        self.words: list[SpokenWord] = []
        self.prompt_tokens = 0
        self.output_tokens = 0

    def add(self, window: HeardWindow) -> str:
        """The text that this window adds to `text`."""
        self.prompt_tokens += len(window.decoded.prompt)
        self.output_tokens += len(window.decoded.tokens)
        added = ""
        for segment in window.segments:
            tokens = [token for token in segment.tokens if token < self._end_token]
            added += "".join(map(self._detokenizer.push, tokens))
            spelled = b"".join(self._vocabulary[token] for token in tokens)
            self._append(window, segment, spelled.decode(errors="replace"))
        return self._grown(added)

    def end(self) -> str:
        """The text that the end adds, if it is within a character."""
        return self._grown(self._detokenizer.flush())

    def _append(self, window: HeardWindow, segment: Segment, text: str) -> None:
        decoded, quality = window.decoded, window.decoded.quality
        self.segments.append(
            SpeechSegment(
                id=len(self.segments),
                seek=window.start,
                start=round(segment.start, 3),
                end=round(segment.end, 3),
                text=text,
                tokens=list(segment.tokens),
                temperature=decoded.temperature,
                avg_logprob=quality.logprob,
                compression_ratio=quality.compression,
                no_speech_prob=quality.no_speech,
            )
        )

    def _grown(self, added: str) -> str:
        added = self._space + added
        if not self.text:
            added = added.lstrip()
        shown = added.rstrip()
        self._space = added[len(shown) :]
        self.text += shown
        return shown


def token_usage(spoken: SpokenFile, transcript: Transcript) -> _TokenUsage:
    details = _InputDetails(spoken.audio_tokens, transcript.prompt_tokens)
    given = details.audio_tokens + details.text_tokens
    made = transcript.output_tokens
    return _TokenUsage(given, made, given + made, details)


def whole_answer(spoken: SpokenFile, transcript: Transcript) -> Response:
    shown = [segment for segment in transcript.segments if segment.text.strip()]
    match spoken.request.form:
        case SpeechFormat.JSON:
            return _json(_Transcription(transcript.text, token_usage(spoken, transcript)))
        case SpeechFormat.TEXT:
            return Response(transcript.text + "\n", media_type="text/plain; charset=utf-8")
        case SpeechFormat.SRT:
            return Response(srt(shown), media_type="application/x-subrip; charset=utf-8")
        case SpeechFormat.VTT:
            return Response(vtt(shown), media_type="text/vtt; charset=utf-8")
        case SpeechFormat.VERBOSE_JSON:
            wanted = spoken.request.granularities
            return _json(
                _Verbose(
                    task=spoken.request.task,
                    language=LANGUAGES[spoken.language],
                    duration=round(spoken.seconds, 3),
                    text=transcript.text,
                    segments=transcript.segments if Granularity.SEGMENT in wanted else UNSET,
                    words=transcript.words if Granularity.WORD in wanted else UNSET,
                    usage=_DurationUsage(round(spoken.seconds, 3)),
                )
            )


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def token_headers(spoken: SpokenFile, cached_share: float) -> dict[str, str]:
    """What routers learn of the worker's cache. Only sound counts: fields such as `prompt` are no
    part of what they compare.

    Args:
        cached_share: the part of the windows that were not encoded again
    """
    return {
        "x-pando-prompt-tokens": str(spoken.audio_tokens),
        "x-pando-cached-tokens": str(round(spoken.audio_tokens * cached_share)),
    }


class SpeechStream(Response):
    """An answer as server-sent events; a window's text is sent once it is decoded, since one that
    is poor is decoded again. Nothing is sent before the first window, so a rejected request gets
    the right status."""

    def __init__(
        self,
        windows: AsyncGenerator[HeardWindow, None],
        spoken: SpokenFile,
        transcript: Transcript,
        headers: Callable[[], dict[str, str]],
    ) -> None:
        """
        Args:
            headers: further ones; called after the first window
        """
        super().__init__()
        self._windows, self._spoken, self._transcript = windows, spoken, transcript
        self._token_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            async with aclosing(self._windows) as windows:
                async for event in self._events(windows):
                    if not started:
                        started = True
                        await send(_head(self._token_headers()))
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        except ApiError as error:
            if not started:
                raise
            await send({"type": "http.response.body", "body": _event(error.body)})
        else:
            await send({"type": "http.response.body", "body": b""})

    async def _events(self, windows: AsyncIterator[HeardWindow]) -> AsyncIterator[bytes]:
        async for window in windows:
            if delta := self._transcript.add(window):
                yield _event(msgspec.json.encode(_TextDelta(delta)))
        transcript = self._transcript
        if delta := transcript.end():
            yield _event(msgspec.json.encode(_TextDelta(delta)))
        done = _TextDone(transcript.text, token_usage(self._spoken, transcript))
        yield _event(msgspec.json.encode(done))


def _head(headers: dict[str, str]) -> Message:
    every = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [(name.encode(), value.encode()) for name, value in (every | headers).items()],
    }


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
