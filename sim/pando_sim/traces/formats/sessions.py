"""Traces of agents' sessions: a JSON object per session, with its calls in order.

A call has `in` and `out` tokens, `think_time` (seconds of tools and people before it), and `ids`:
runs `[first, count]` of ids of blocks of 64 tokens, which are equal within the session only. What
its blocks do not cover of a prompt, less than a block, no other prompt has. A call of type
`subagent` has `requests` of its own, beside the main ones; `t` is when it ended, `duration_ms` how
long it took. The first `tool_tokens` of a session are the descriptions of its tools. The data do
not say whether they are the same text in two sessions; with `Reading.shared_tools`, equal sizes
mean equal texts.
Source of the format: traces/ of https://github.com/callanjfox/kv-cache-tester.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from pando_fleet.placement.prefix import CHUNK_BYTES, MAX_CHUNKS
from pando_sim.request import TOKEN_BYTES
from pando_sim.session import Call, Conversation, Session
from pando_sim.traces.errors import LineError
from pando_sim.traces.formats.format import Reader
from pando_sim.traces.json_lines import decode
from pando_sim.traces.lines import Line, lines
from pando_sim.traces.prompts import Ids, mix, mix_one, packed, tokens_of
from pando_sim.traces.rows import Reading
from pando_sim.traces.unplayed import Unplayed

BLOCK_TOKENS = CHUNK_BYTES // TOKEN_BYTES
"""A block is a chunk, so a chunk's key names a beginning of whole blocks."""

MAX_TOKENS = 1 << 24
"""Of a prompt or an answer; a longer one is an error of the trace."""

_SUBAGENT = "subagent"
_TOOLS, _REST = 1 << 62, 1 << 61  # kinds of texts, so that their names differ

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, gc=False):
    """A call, or a sub-agent with calls of its own."""

    type: str = ""
    tokens_in: _Count = msgspec.field(name="in", default=0)
    tokens_out: _Count = msgspec.field(name="out", default=0)
    think_time: _Seconds | None = None
    ids: list[tuple[_Id, _Count]] = []
    t: _Seconds = 0.0
    api_time: _Seconds | None = None
    duration_ms: _Seconds = 0.0
    requests: list["_Entry"] = []


class _SessionLine(msgspec.Struct, gc=False):
    id: str
    block_size: int
    requests: list[_Entry]
    tool_tokens: _Count = 0


_decoder = msgspec.json.Decoder(_SessionLine)


@dataclass(frozen=True, slots=True, eq=False)
class RunsPrompt:
    """Runs of blocks; kept as runs, because a session has hundreds of prompts of 100,000 tokens."""

    runs: NDArray[np.int64]  # shape [runs, 2]: first id, count
    num_tokens: int  # up to a block more than the runs cover
    names: "Names"
    number: int  # of the prompt in its session

    @property
    def num_bytes(self) -> int:
        return self.num_tokens * TOKEN_BYTES

    def tokens(self) -> NDArray[np.int32]:
        places = np.arange(BLOCK_TOKENS, dtype=np.uint64)
        blocks = tokens_of(mix(self._blocks())[:, None], places).reshape(-1)
        rest = np.arange(self.num_tokens - len(blocks), dtype=np.uint64)
        own = mix_one(self.names.session ^ mix_of(_REST, self.number))
        return np.concatenate((blocks, tokens_of(own, rest)))

    def keys(self) -> bytes:
        return packed(self.beginnings()[:MAX_CHUNKS])

    def beginnings(self) -> Ids:
        """Names of its beginnings of whole blocks, from short to long."""
        blocks = self._blocks()
        places = np.arange(len(blocks), dtype=np.uint64)
        # A sum of what stands where: equal as far as the blocks are.
        return mix(np.cumsum(mix(mix(blocks) ^ mix(places)), dtype=np.uint64))

    def _blocks(self) -> Ids:
        ids = [np.arange(first, first + size) for first, size in self.runs.tolist()]
        return self.names.of(np.concatenate(ids) if ids else np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Names:
    """Names blocks so that only blocks of one session, or of equal tools, have equal ones."""

    session: int
    tools: int  # how long the descriptions of its tools are, tokens; 0: they are its own
    first_tool: int  # the id of their first block
    tool_blocks: int

    def of(self, ids: NDArray[np.int64]) -> Ids:
        names = mix(ids.astype(np.uint64) ^ np.uint64(mix_one(self.session)))
        place = ids - self.first_tool
        are_tools = (place >= 0) & (place < self.tool_blocks)
        tools = place[are_tools].astype(np.uint64) ^ np.uint64(mix_of(_TOOLS, self.tools))
        names[are_tools] = mix(tools)
        return names


def mix_of(kind: int, number: int) -> int:
    return int(mix_one(kind | number))


def sessions(
    path: Path, reading: Reading, first: int, again: int, unplayed: Unplayed
) -> Iterator[Session]:
    """The sessions of a file, whose own numbers begin at `first`. Each time that it is read `again`
    they are new sessions, which share no more than the descriptions of tools with earlier ones."""
    known_tools: set[int] = set()
    for line in lines(path):
        try:
            yield _session(path, line, _Pass(reading, first, again, known_tools))
        except LineError as error:
            unplayed.add(error)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One reading of a file."""

    reading: Reading
    first: int
    again: int
    known_tools: set[int]  # sizes of the descriptions of earlier sessions' tools

    def number(self, line: Line) -> int:
        return int(mix_one((self.first + line.number) ^ int(mix_one(self.again))))

    def knows(self, tools: int) -> bool:
        """Whether an earlier session had these tools; this one has them now."""
        if self.again or tools in self.known_tools:
            return True
        self.known_tools.add(tools)
        return False


def _session(path: Path, line: Line, one_pass: _Pass) -> Session:
    found = decode(path, line, _decoder)
    if found.block_size != BLOCK_TOKENS:
        what = f"has blocks of {found.block_size} tokens, not of {BLOCK_TOKENS}"
        raise LineError(path, line.number, what, f"its blocks are not of {BLOCK_TOKENS} tokens")
    main = [entry for entry in found.requests if entry.type != _SUBAGENT]
    if not main:
        raise LineError(path, line.number, "has no calls")
    _check(path, line.number, found.requests)
    names = _names(found, main[0], one_pass.number(line), one_pass.reading)
    conversations = [(None, main), *_subagents(found.requests)]
    repeated = _repeated(conversations, names, one_pass)
    prompts = count()
    return Session(
        name=f"{found.id}/{one_pass.again}" if one_pass.again else found.id,
        conversations=tuple(
            Conversation(
                calls=tuple(
                    Call(
                        prompt=_prompt(entry, names, next(prompts)),
                        output_tokens=max(1, entry.tokens_out),
                        pause_s=entry.think_time or 0.0,
                        repeated_tokens=repeated[id(entry)],
                    )
                    for entry in calls
                ),
                after=after,
            )
            for after, calls in conversations
        ),
    )


def _check(path: Path, line: int, entries: list[_Entry]) -> None:
    """Raises LineError if a call's blocks and its length do not fit together."""
    for entry in entries:
        if entry.type == _SUBAGENT:
            if any(inner.type == _SUBAGENT for inner in entry.requests):
                raise LineError(path, line, "has a sub-agent of a sub-agent")
            _check(path, line, entry.requests)
            continue
        covered = BLOCK_TOKENS * sum(size for _, size in entry.ids)
        if not covered <= entry.tokens_in < covered + BLOCK_TOKENS or not entry.tokens_in:
            raise LineError(
                path,
                line,
                f"has a call of {entry.tokens_in:,} tokens whose blocks cover {covered:,}",
                "it has a call with more or fewer blocks than tokens",
            )


def _names(found: _SessionLine, first: _Entry, number: int, reading: Reading) -> Names:
    """The descriptions of tools are the whole blocks at the first prompt's beginning."""
    tools = found.tool_tokens // BLOCK_TOKENS if reading.shared_tools and first.ids else 0
    first_id, size = first.ids[0] if first.ids else (0, 0)
    tools = min(tools, size)
    return Names(number, found.tool_tokens if tools else 0, first_id, tools)


def _subagents(entries: list[_Entry]) -> Iterator[tuple[int, list[_Entry]]]:
    """Each with the main call after whose answer it began."""
    ends: list[float] = []  # of the main calls before it
    for entry in entries:
        if entry.type != _SUBAGENT:
            ends.append(entry.t + (entry.api_time or 0.0))
        elif entry.requests:
            began = entry.t - entry.duration_ms / 1000
            before = [place for place, end in enumerate(ends) if end <= began]
            yield (before[-1] if before else 0), entry.requests


def _repeated(
    conversations: list[tuple[int | None, list[_Entry]]], names: Names, one_pass: _Pass
) -> dict[int, int]:
    """By call, how many of its tokens the session's earlier prompts, or tools of an earlier
    session, begin with."""
    known: set[int] = set()
    found = {}
    order = [entry for _, calls in conversations for entry in calls]
    if names.tools and one_pass.knows(names.tools):
        known.update(_prompt(order[0], names, 0).beginnings()[: names.tool_blocks].tolist())
    for entry in order:
        beginnings = _prompt(entry, names, 0).beginnings().tolist()
        low, high = 0, len(beginnings)
        while low < high:
            middle = (low + high) // 2
            if beginnings[middle] in known:
                low = middle + 1
            else:
                high = middle
        found[id(entry)] = low * BLOCK_TOKENS
        known.update(beginnings[low:])
    return found


def _prompt(entry: _Entry, names: Names, number: int) -> RunsPrompt:
    runs = np.array(entry.ids, dtype=np.int64).reshape(-1, 2)
    return RunsPrompt(runs, entry.tokens_in, names, number)


READER = Reader(sessions=sessions)
