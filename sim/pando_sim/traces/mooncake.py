"""Mooncake's traces: a JSON object a request, with an id for each block of 512 tokens.

`timestamp` is in milliseconds, `input_length` and `output_length` in tokens; equal `hash_ids` mean
that blocks are equal, and all before them. A last block that the prompt does not fill is cut.
Without `hash_ids` no prompt shares anything. A `session_id`, which the original traces do not have,
names the conversation whose answer before a request waits for.

Source of the format: FAST25-release/traces of https://github.com/kvcache-ai/Mooncake.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from pando_sim.traces.errors import TraceError
from pando_sim.traces.json_lines import decode
from pando_sim.traces.lines import lines
from pando_sim.traces.prompts import BlockPrompt, TracePrompt, UniquePrompt
from pando_sim.traces.rows import Reading, Row

BLOCK_TOKENS = 512

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Line(msgspec.Struct, gc=False):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]  # ms
    input_length: _Count
    output_length: _Count
    hash_ids: list[_Count] | None = None
    session_id: str | int | None = None


_decoder = msgspec.json.Decoder(_Line)


def rows(path: Path, reading: Reading, base: int) -> Iterator[Row]:
    for line in lines(path):
        found = decode(path, line, _decoder)
        yield Row(
            line=line.number,
            at_s=found.timestamp / 1000,
            prompt=_prompt(path, line.number, found, base),
            output_tokens=found.output_length,
            session="" if found.session_id is None else str(found.session_id),
        )


def _prompt(path: Path, number: int, line: _Line, base: int) -> TracePrompt:
    tokens = max(1, line.input_length)
    if line.hash_ids is None:
        return UniquePrompt(base + number, tokens)
    blocks = -(-tokens // BLOCK_TOKENS)
    if len(line.hash_ids) != blocks:
        raise TraceError(
            path,
            number,
            f"has {len(line.hash_ids)} hash_ids for {tokens:,} tokens; blocks of {BLOCK_TOKENS}"
            f" tokens would be {blocks}",
        )
    try:
        ids = np.array(line.hash_ids, dtype=np.uint64)
    except OverflowError:
        raise TraceError(path, number, "has a hash_id above 2**64 - 1") from None
    return BlockPrompt(ids, tokens, BLOCK_TOKENS)
