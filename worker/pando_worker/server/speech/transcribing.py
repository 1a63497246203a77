"""Answers a transcription or a translation: reads the form, listens, and writes what was said."""

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Request
from starlette.responses import Response

from pando_fleet.http.form import read_form
from pando_worker.audio.errors import AudioError, AudioUnavailableError
from pando_worker.audio.heard import Heard
from pando_worker.audio.languages import LANGUAGES
from pando_worker.audio.pauses import SoundPiece
from pando_worker.audio.tokens import TRANSLATE
from pando_worker.server.errors import bad_request, unavailable
from pando_worker.server.hearing import Hearing
from pando_worker.server.protocol.headers.cache_salt import namespace_of
from pando_worker.server.protocol.headers.deadline import remaining_s
from pando_worker.server.protocol.speech import FILE, Granularity, SpeechRequest, read_request
from pando_worker.server.service import Service
from pando_worker.server.speech.answers import (
    SpeechStream,
    SpokenFile,
    Transcript,
    token_headers,
    whole_answer,
)
from pando_worker.server.speech.listening import HeardWindow, Listener
from pando_worker.server.speech.spoken_words import WordFinder
from pando_worker.server.speech.timing import SpeechTimes
from pando_worker.server.speech.windows import Caller, WindowDecoder


async def transcribed(service: Service, request: Request, task: str) -> Response:
    """Raises ApiError for what the model cannot hear, and as the engine does."""
    hearing = _hearing(service)
    content_type = request.headers.get("content-type", "").encode("latin-1")
    form = read_form(await request.body(), content_type, service.settings.max_audio_bytes)
    asked = read_request(form, task)
    service.use_model(request, asked.model)
    _check_language(hearing, asked)
    before = await _before(service, hearing, asked.prompt)
    heard = await _heard(hearing, asked.file)
    caller = Caller(
        rid=request.state.request_id,
        namespace=namespace_of(request, None),
        deadline_s=remaining_s(request, service.settings.request_timeout_seconds),
    )
    times = SpeechTimes(service.metrics, request.state.received)
    decoder = WindowDecoder(
        service.engine,
        caller,
        hearing,
        heard,
        times,
        temperature=asked.temperature,
    )
    window = 2 * hearing.positions
    language = await _language(decoder, hearing, asked, min(window, heard.frames))
    pieces = heard.pieces if asked.is_cut else (SoundPiece(0, heard.frames),)
    timestamps = asked.has_times or any(piece.end - piece.start > window for piece in pieces)
    listener = Listener(
        decoder=decoder,
        tokens=hearing.tokens,
        heard=heard,
        window=window,
        prompt=hearing.tokens.prompt(language, task, before, timestamps=timestamps),
        timestamps=timestamps,
    )
    spoken = SpokenFile(
        request=asked,
        language="en" if task == TRANSLATE or language is None else language,
        seconds=heard.seconds,
        audio_tokens=hearing.tokens_of(heard.seconds),
    )
    transcript = Transcript(service.model.tokenizer.vocabulary, hearing.tokens.end)
    windows = _timed(listener.windows(pieces), times)
    if asked.is_stream:
        has_one_window = heard.frames <= window

        def headers() -> dict[str, str]:
            return token_headers(spoken, decoder.cached_share) if has_one_window else {}

        return SpeechStream(windows, spoken, transcript, headers)
    finder = WordFinder(
        engine=service.engine,
        caller=caller,
        decoder=decoder,
        tokens=hearing.tokens,
        vocabulary=service.model.tokenizer.vocabulary,
        language=spoken.language,
        frames=math.ceil(heard.seconds * hearing.frames_per_s),
        positions=hearing.positions,
    )
    async with aclosing(windows):
        async for found in windows:
            transcript.add(found)
            if Granularity.WORD in asked.granularities:
                transcript.words += [word async for word in finder.words(found)]
    transcript.end()
    answer = whole_answer(spoken, transcript)
    answer.headers.update(token_headers(spoken, decoder.cached_share))
    return answer


async def _timed(
    windows: AsyncGenerator[HeardWindow, None], times: SpeechTimes
) -> AsyncGenerator[HeardWindow, None]:
    """The same windows; the request ends behind the last."""
    tokens = 0
    async with aclosing(windows):
        async for window in windows:
            tokens += len(window.decoded.tokens)
            yield window
    times.ended(tokens)


def _hearing(service: Service) -> Hearing:
    hearing = service.hearing
    if hearing is None:
        raise bad_request(
            f"{service.model.name!r} reads text and does not hear: speech needs a model such as"
            " Whisper",
            "model",
        )
    if hearing.reader.form is None:
        raise unavailable("the feature extractor is still loading", "model_loading")
    return hearing


def _check_language(hearing: Hearing, asked: SpeechRequest) -> None:
    known = hearing.tokens.languages
    if not known:
        if asked.task == TRANSLATE:
            raise bad_request(f"{asked.model!r} knows English only: it translates nothing", "model")
        if asked.language not in (None, "en"):
            raise bad_request(f"{asked.model!r} knows English only", "language")
    elif asked.language is not None and asked.language not in known:
        raise bad_request(f"{asked.model!r} does not know {LANGUAGES[asked.language]}", "language")


async def _before(service: Service, hearing: Hearing, prompt: str) -> list[int]:
    """The tokens of a text that came before."""
    if not prompt.strip():
        return []
    text = " " + prompt.strip()
    found = await service.model.tokenizer.encode(text, add_special_tokens=False)
    if any(token >= hearing.tokens.end for token in found.token_ids):
        raise bad_request("prompt must not contain the model's special tokens", "prompt")
    return found.token_ids


async def _heard(hearing: Hearing, file: bytes) -> Heard:
    try:
        return await hearing.reader.read(file)
    except AudioError as error:
        raise bad_request(f"{FILE} {error}", FILE, "invalid_audio") from error
    except AudioUnavailableError as error:
        raise unavailable(f"{error}; try again later", "audio_unavailable") from error


async def _language(
    decoder: WindowDecoder, hearing: Hearing, asked: SpeechRequest, count: int
) -> str | None:
    """Its code; None for a model that knows English only."""
    if not hearing.tokens.languages:
        return None
    return asked.language or await decoder.language(0, count)
