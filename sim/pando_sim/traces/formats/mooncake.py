"""Mooncake's traces: a JSON object per request, with an id for each block of 512 tokens.

`timestamp` is in milliseconds, `input_length` and `output_length` in tokens; equal `hash_ids` mean
that the blocks, and all before them, are equal. A last block that the prompt does not fill is cut.
Without `hash_ids` prompts share nothing. A `session_id`, which the original traces lack, names the
conversation whose previous answer a request waits for; `images` and `audio_seconds`, which they
lack too, stand in front of the prompt and are not in its `input_length`.
Source of the format: FAST25-release/traces of https://github.com/kvcache-ai/Mooncake.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from pando_sim.traces.errors import LineError
from pando_sim.traces.formats.format import Reader
from pando_sim.traces.images import ImagesError, ImageTokenizer, TraceImage, in_front, roomy
from pando_sim.traces.json_lines import decode
from pando_sim.traces.lines import Line, lines
from pando_sim.traces.prompts import (
    BlockPrompt,
    TextPrompt,
    TracePrompt,
    UniquePrompt,
    view_tokens,
)
from pando_sim.traces.rows import Reading, Row, playable
from pando_sim.traces.sounds import SoundsError, TraceSound, heard_first
from pando_sim.traces.unplayed import Unplayed

BLOCK_TOKENS = 512

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _MooncakeLine(msgspec.Struct, gc=False):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]  # ms
    input_length: _Count
    output_length: _Count
    hash_ids: list[_Count] | None = None
    session_id: str | int | None = None
    images: list[TraceImage] = []
    audio_seconds: list[TraceSound] = []


_decoder = msgspec.json.Decoder(_MooncakeLine)


def rows(path: Path, reading: Reading, base: int, unplayed: Unplayed) -> Iterator[Row]:
    def row(line: Line) -> Row:
        found = decode(path, line, _decoder)
        return Row(
            line=line.number,
            at_s=found.timestamp / 1000,
            prompt=_prompt(path, line.number, found, reading, base),
            output_tokens=found.output_length,
            session="" if found.session_id is None else str(found.session_id),
        )

    return playable(lines(path), row, unplayed)


def _prompt(
    path: Path, number: int, line: _MooncakeLine, reading: Reading, base: int
) -> TracePrompt:
    text = _text(path, number, line, base)
    if not line.images and not line.audio_seconds:
        return text
    try:
        sounds = heard_first(line.audio_seconds, reading.image_rule)
        front, found = in_front(line.images)
        front = sounds + roomy(front, found, line.images, reading.image_rule)
    except ImagesError as error:
        raise LineError(path, number, str(error), "its images have no tokens") from error
    except SoundsError as error:
        raise LineError(path, number, str(error), "its audio has no tokens") from error
    return TextPrompt(front + text.tokens().tobytes(), ImageTokenizer(view_tokens))


def _text(path: Path, number: int, line: _MooncakeLine, base: int) -> TracePrompt:
    tokens = max(1, line.input_length)
    if line.hash_ids is None or not line.input_length:
        return UniquePrompt(base + number, tokens)
    blocks = -(-tokens // BLOCK_TOKENS)
    if len(line.hash_ids) != blocks:
        raise LineError(
            path,
            number,
            f"has {len(line.hash_ids)} hash_ids for {tokens:,} tokens; blocks of {BLOCK_TOKENS}"
            f" tokens would be {blocks}",
            "it has more or fewer hash_ids than blocks",
        )
    try:
        ids = np.array(line.hash_ids, dtype=np.uint64)
    except OverflowError:
        raise LineError(path, number, "has a hash_id above 2**64 - 1") from None
    return BlockPrompt(ids, tokens, BLOCK_TOKENS)


READER = Reader(rows=rows)
