"""The forms of /v1/audio/transcriptions and /v1/audio/translations.

Unlike bodies in JSON they are read strictly: an unknown field is refused, since it is mostly a
misspelled one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pando_fleet.http.form import Form
from pando_worker.audio.languages import code_of
from pando_worker.audio.tokens import TRANSCRIBE, TRANSLATE
from pando_worker.server.errors import bad_request

FILE = "file"

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class SpeechFormat(StrEnum):
    JSON = "json"
    TEXT = "text"
    SRT = "srt"
    VTT = "vtt"
    VERBOSE_JSON = "verbose_json"


class Granularity(StrEnum):
    WORD = "word"
    SEGMENT = "segment"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRequest:
    """
    Attributes:
        task: `TRANSCRIBE` or `TRANSLATE`
        language: its code; None: detected
        is_cut: in pauses, so that windows of a long file are heard at once
    """

    task: str
    model: str
    file: bytes
    language: str | None = None
    prompt: str = ""
    form: SpeechFormat = SpeechFormat.JSON
    temperature: float = 0.0
    granularities: frozenset[Granularity] = frozenset([Granularity.SEGMENT])
    is_stream: bool = False
    is_cut: bool = False

    @property
    def has_times(self) -> bool:
        return self.form not in (SpeechFormat.JSON, SpeechFormat.TEXT)


_BOTH = ("model", "prompt", "response_format", "temperature", "stream", "chunking_strategy")
_GRANULARITIES = "timestamp_granularities"
_FIELDS = {
    TRANSCRIBE: frozenset([*_BOTH, "language", _GRANULARITIES, f"{_GRANULARITIES}[]"]),
    TRANSLATE: frozenset(_BOTH),
}
_TRUE, _FALSE = ("true", "1"), ("false", "0")


def read_request(form: Form, task: str) -> SpeechRequest:
    """Raises ApiError 400 that names the field."""
    known = _FIELDS[task]
    if unknown := sorted(form.fields.keys() - known) or sorted(form.files.keys() - {FILE}):
        name = unknown[0][:100]
        raise bad_request(
            f"unknown field {name!r}; there are {', '.join(sorted([*known, FILE]))}",
            name,
            "unknown_parameter",
        )
    if FILE not in form.files:
        raise bad_request("file is required, as a part of the form with a filename", FILE)
    model = form.only("model")
    if not model:
        raise bad_request("model is required", "model")
    format_ = _choice(form.only("response_format"), "response_format", SpeechFormat)
    request = SpeechRequest(
        task=task,
        model=model,
        file=form.files[FILE],
        language=_language(form.only("language")),
        prompt=form.only("prompt") or "",
        form=format_ or SpeechFormat.JSON,
        temperature=_temperature(form.only("temperature")),
        granularities=_granularities(form),
        is_stream=_flag(form.only("stream"), "stream"),
        is_cut=_is_cut(form.only("chunking_strategy")),
    )
    _check_together(request, form)
    return request


def _check_together(request: SpeechRequest, form: Form) -> None:
    if request.is_stream and request.has_times:
        raise bad_request(
            f"stream needs response_format json or text, not {request.form}", "stream"
        )
    asks = form.fields.keys() & {_GRANULARITIES, f"{_GRANULARITIES}[]"}
    if asks and request.form is not SpeechFormat.VERBOSE_JSON:
        raise bad_request(
            f"{_GRANULARITIES} needs response_format verbose_json, not {request.form}",
            _GRANULARITIES,
        )


def _language(name: str | None) -> str | None:
    if not name:
        return None
    code = code_of(name)
    if code is None:
        raise bad_request(
            f"language must be a code of ISO 639-1 such as en, not {name[:40]!r}", "language"
        )
    return code


def _temperature(text: str | None) -> float:
    if text is None or text == "":
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise bad_request(
            f"temperature must be a number between 0 and 1, not {text[:40]!r}", "temperature"
        )
    return value


def _granularities(form: Form) -> frozenset[Granularity]:
    given = [*form.fields.get(_GRANULARITIES, ()), *form.fields.get(f"{_GRANULARITIES}[]", ())]
    found = [_choice(value, _GRANULARITIES, Granularity) for value in given]
    return frozenset(filter(None, found)) or frozenset([Granularity.SEGMENT])


def _is_cut(value: str | None) -> bool:
    if value and value != "auto":
        raise bad_request(
            f"chunking_strategy must be auto, or left out, not {value[:40]!r}", "chunking_strategy"
        )
    return bool(value)


def _choice(value: str | None, name: str, kind: type[ChoiceT]) -> ChoiceT | None:
    if not value:
        return None
    try:
        return kind(value)
    except ValueError as error:
        allowed = _listed([each.value for each in kind])
        raise bad_request(f"{name} must be {allowed}, not {value[:40]!r}", name) from error


def _flag(value: str | None, name: str) -> bool:
    text = (value or "false").lower()
    if text not in _TRUE + _FALSE:
        raise bad_request(f"{name} must be true or false, not {text[:40]!r}", name)
    return text in _TRUE


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
