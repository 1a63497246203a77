"""`SpeechTokens`: Whisper's special tokens and rules, from the model's `generation_config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pando_worker.audio.errors import AudioModelError

TRANSCRIBE, TRANSLATE = "transcribe", "translate"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechTokens:
    """
    Attributes:
        start: <|startoftranscript|>
        previous: <|startofprev|>, before what was said before; None if the model has none
        end: <|endoftext|>; all text is below it
        no_timestamps: <|notimestamps|>; <|nospeech|> is before it, <|0.00|> behind it
        languages: tokens by code; empty if the model knows English only
        tasks: tokens of `TRANSCRIBE` and `TRANSLATE`
        suppressed, suppressed_first: tokens that are never made, and not as the first one
        max_initial: the latest time stamp at the beginning of a window, in steps of 0.02 s
        most: tokens of a decoder's prompt and output
        vocab_size: of the model
    """

    start: int
    previous: int | None
    end: int
    no_timestamps: int
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]
    max_initial: int | None
    most: int
    vocab_size: int

    @property
    def first_timestamp(self) -> int:
        return self.no_timestamps + 1

    @property
    def no_speech(self) -> int:
        return self.no_timestamps - 1

    def prompt(
        self, language: str | None, task: str, before: list[int], *, timestamps: bool
    ) -> list[int]:
        """The decoder's prompt.

        Args:
            language: a code; None for a model that knows English only
            before: tokens of a text that came before, of which the last ones count
        """
        context = []
        if before and self.previous is not None:
            context = [self.previous, *before[-(self.most // 2 - 1) :]]
        said = [self.languages[language], self.tasks[task]] if language else []
        return [*context, self.start, *said, *([] if timestamps else [self.no_timestamps])]


class _Generation(msgspec.Struct, frozen=True):
    decoder_start_token_id: int
    eos_token_id: int
    no_timestamps_token_id: int
    lang_to_id: dict[str, int] = {}
    task_to_id: dict[str, int] = {}
    is_multilingual: bool = True
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None
    max_initial_timestamp_index: int | None = None
    prev_sot_token_id: int | None = None


class _Model(msgspec.Struct, frozen=True):
    max_target_positions: int
    vocab_size: int


def read_tokens(model_dir: Path, previous: int | None) -> SpeechTokens:
    """
    Args:
        previous: the tokenizer's <|startofprev|>

    Raises:
        AudioModelError: the model's files lack what transcriptions need.
    """
    given: Any = _read(model_dir / "generation_config.json", _Generation)
    model: Any = _read(model_dir / "config.json", _Model)
    multilingual = given.is_multilingual
    languages = {name.strip("<|>"): token for name, token in given.lang_to_id.items()}
    if multilingual and not {TRANSCRIBE, TRANSLATE} <= given.task_to_id.keys():
        raise AudioModelError("generation_config.json has no task_to_id, which speech needs")
    return SpeechTokens(
        start=given.decoder_start_token_id,
        previous=given.prev_sot_token_id or previous,
        end=given.eos_token_id,
        no_timestamps=given.no_timestamps_token_id,
        languages=languages if multilingual else {},
        tasks=given.task_to_id,
        suppressed=tuple(given.suppress_tokens or ()),
        suppressed_first=tuple(given.begin_suppress_tokens or ()),
        max_initial=given.max_initial_timestamp_index,
        most=model.max_target_positions,
        vocab_size=model.vocab_size,
    )


def _read(path: Path, form: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except (OSError, msgspec.MsgspecError, UnicodeError) as error:
        raise AudioModelError(f"{path.name} cannot be read for speech: {error}") from error
