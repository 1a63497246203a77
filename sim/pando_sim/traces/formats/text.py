"""Traces with real text: OpenAI's bodies of chats and completions, and the calls of agents.

A JSON object per request. Its prompt is `messages` (with `tools`), `prompt` (a text or token ids)
or an agent's `input`, either beside `timestamp` or in `body`; it becomes the canonical bytes that a
router makes from it. The length of its answer is the first of `output_tokens`, `output_length`, the
`usage` in `response`, and the text `output`. `images` gives the sizes and hashes of images, in the
places of the messages' parts that are images, or in front of a prompt without such parts.
`audio_seconds` gives the lengths and hashes of files of sound, in front of the prompt; a request
with such files needs none. Requests with the same `session_id` wait for each other's answers;
`duration_s` is how long the answer took.

`timestamp` is an ISO 8601 time, or a number: seconds, or a Unix time in milli-, micro- or
nanoseconds, distinguished by size.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pando_fleet.canonical import PrefixError, chat_bytes, completion_bytes, tools_bytes
from pando_fleet.images.in_prefix import PrefixImage
from pando_sim.traces.errors import LineError
from pando_sim.traces.formats.format import Reader
from pando_sim.traces.images import (
    ImagesError,
    ImageTokenizer,
    TraceImage,
    in_front,
    placed,
    roomy,
)
from pando_sim.traces.json_lines import decode
from pando_sim.traces.lines import Line, lines
from pando_sim.traces.prompts import TextPrompt, TracePrompt, UniquePrompt, view_tokens
from pando_sim.traces.rows import Reading, Row, playable
from pando_sim.traces.sounds import SoundsError, TraceSound, heard_first
from pando_sim.traces.unplayed import Unplayed

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Body(msgspec.Struct, gc=False):
    model: Any = None
    messages: Any = None
    tools: Any = None
    functions: Any = None
    prompt: Any = None
    input: Any = None


class _Usage(msgspec.Struct, gc=False):
    completion_tokens: _Count


class _Answer(msgspec.Struct, gc=False):
    usage: _Usage | None = None
    body: "_Answer | None" = None  # in OpenAI's batches


class _TextLine(_Body, gc=False, kw_only=True):
    timestamp: float | str
    body: _Body | None = None
    session_id: str | int | None = None
    output_tokens: _Count | None = None
    output_length: _Count | None = None
    response: _Answer | None = None
    output: str | None = None
    duration_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    images: list[TraceImage] = []
    audio_seconds: list[TraceSound] = []


_decoder = msgspec.json.Decoder(_TextLine)


def rows(path: Path, reading: Reading, base: int, unplayed: Unplayed) -> Iterator[Row]:
    def row(line: Line) -> Row | None:
        found = decode(path, line, _decoder)
        body = found.body or found
        if reading.model is not None and body.model != reading.model:
            return None
        at_s = _seconds(path, line, found.timestamp)
        session = "" if found.session_id is None else str(found.session_id)
        return Row(
            line=line.number,
            at_s=at_s,
            prompt=_prompt(path, line, found, reading, base),
            output_tokens=_output_tokens(path, line, found, reading),
            session=session,
            end_s=None if found.duration_s is None else at_s + found.duration_s,
        )

    return playable(lines(path), row, unplayed)


def _seconds(path: Path, line: Line, timestamp: float | str) -> float:
    if isinstance(timestamp, str):
        try:
            when = datetime.fromisoformat(timestamp)
        except ValueError:
            why = f"timestamp is {timestamp!r}, which is not an ISO 8601 time"
            raise LineError(path, line.number, why, "timestamp is not an ISO 8601 time") from None
        return (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    # In each of the smaller units: times of the years 1973 to 5138.
    for above, units in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if timestamp >= above:
            return timestamp / units
    return timestamp


def _prompt(
    path: Path,
    line: Line,
    found: _TextLine,
    reading: Reading,
    base: int,
) -> TracePrompt:
    """An empty prompt becomes one token that no other prompt shares."""
    body, images, sounds = found.body or found, found.images, found.audio_seconds
    given = next((one for one in (body.messages, body.prompt, body.input) if one is not None), None)
    if given in ("", []) and not images and not sounds:
        return UniquePrompt(base + line.number, 1)
    try:
        front = heard_first(sounds, reading.image_rule)
        data, places = (b"", []) if front and given is None else _bytes(body, images)
        data = front + roomy(data, places, images, reading.image_rule)
    except (PrefixError, UnicodeError) as error:
        what, reason = str(error), "a router would refuse its prompt"
        raise LineError(path, line.number, what, reason) from error
    except ImagesError as error:
        raise LineError(path, line.number, str(error), "its images have no tokens") from error
    except SoundsError as error:
        raise LineError(path, line.number, str(error), "its audio has no tokens") from error
    has_ids = body.messages is None and isinstance(body.prompt, list) and body.prompt
    tokenize = token_ids if has_ids else reading.tokenize or view_tokens
    return TextPrompt(data, ImageTokenizer(tokenize) if places or front else tokenize)


def _bytes(body: _Body, images: Sequence[TraceImage]) -> tuple[bytes, list[PrefixImage]]:
    """The prompt's canonical bytes, and its images among them. Images without a place in the
    messages stand in front of the prompt."""
    found: list[PrefixImage] = []
    if body.messages is not None:
        tools = tools_bytes(body.tools) or tools_bytes(body.functions)
        messages, are_placed = placed(body.messages, images) if images else (body.messages, True)
        if are_placed:
            return chat_bytes(messages, tools, found), found
        data = chat_bytes(messages, tools)
    elif body.prompt is not None:
        data = completion_bytes(body.prompt)
    elif isinstance(body.input, str):
        data = completion_bytes(body.input)
    else:
        raise PrefixError("has neither messages nor a prompt nor a text as input")
    front, found = in_front(images)
    return front + data, found


def token_ids(data: bytes) -> NDArray[np.int32]:
    """The token ids in canonical bytes: a mark of one byte, and 4 bytes per id.

    A last id that is cut off is dropped.
    """
    whole = (len(data) - 1) // 4
    ids = np.frombuffer(data, dtype="<u4", count=whole, offset=1)
    return ids.astype(np.int32) & np.int32(0x7FFFFFFF)


def _output_tokens(path: Path, line: Line, found: _TextLine, reading: Reading) -> int:
    answer = found.response
    if answer is not None and answer.usage is None:
        answer = answer.body
    for count in (
        found.output_tokens,
        found.output_length,
        answer.usage.completion_tokens if answer is not None and answer.usage else None,
    ):
        if count is not None:
            return count
    if found.output is not None:
        tokenize = reading.tokenize or view_tokens
        return len(tokenize(found.output.encode()))
    raise LineError(
        path,
        line.number,
        "does not say how long its answer was: output_tokens, output_length, response.usage or the"
        " text output",
    )


READER = Reader(rows=rows)
