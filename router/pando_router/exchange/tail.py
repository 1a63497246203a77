"""Reads a request's token usage from the end of its answer."""

import json
from typing import Annotated

import msgspec

TAIL_BYTES = 4096
"""How many bytes at the end are searched for the usage; what follows it is far shorter."""

_NAME = b'"usage"'
_NAMES = (_NAME, b'"meta_info"')  # the latter in /generate, which lacks the former


class Usage(msgspec.Struct, frozen=True, gc=False):  # made faster than a frozen data class
    """Token counts as far as the answer reports them: an embedding has no output, and Anthropic's
    streams report the prompt at their beginning."""

    prompt: int | None
    output: int | None
    cached: int | None = None  # of the prompt; some engines must be configured to report it


_Count = Annotated[int, msgspec.Meta(ge=0)] | None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count = None


class _Fields(msgspec.Struct, gc=False):
    """The names of all APIs."""

    prompt_tokens: _Count = None
    input_tokens: _Count = None
    completion_tokens: _Count = None
    output_tokens: _Count = None
    cached_tokens: _Count = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: _Fields | None = None
    meta_info: _Fields | None = None


_decode = msgspec.json.Decoder(_Fields).decode
_decode_answer = msgspec.json.Decoder(_Answer).decode
_scan = json.JSONDecoder().raw_decode
_UNREADABLE = (ValueError, msgspec.MsgspecError)
_EVENT = b"data: {"
_BRACE = ord("}")


def find_usage(tail: bytes) -> Usage | None:
    """The last usage in `tail`, the end of a JSON answer or of a stream of JSON events.

    In generated text the name's quotes are escaped, so it is not mistaken for the answer's own.
    """
    _, name, rest = tail.rpartition(_NAME)
    if name and (usage := _in_last_object(b'{"usage"' + rest)) is not None:
        return usage
    if tail.startswith(b"{") and (usage := _in_last_object(tail)) is not None:
        return usage
    return _searched(tail)


class Tail(msgspec.Struct, gc=False):  # made faster than a class with slots
    """The last bytes of an answer, from its first chunk on, and how many events it had. Most
    answers that are no streams have one chunk only."""

    _kept: bytes  # but for the new chunks
    _new: list[bytes] | None = None  # looking at each of them costs more than at all together
    _new_bytes: int = 0
    _cut_events: int = 0  # those that `_kept` no longer contains
    _usage: Usage | msgspec.UnsetType | None = msgspec.UNSET  # as several listeners want it

    def add(self, chunk: bytes) -> None:
        if self._new is None:
            self._new = []
        self._new.append(chunk)
        self._new_bytes += len(chunk)
        if len(self._kept) + self._new_bytes > 2 * TAIL_BYTES:
            self._look()

    @property
    def events(self) -> int:
        """In streams, about one per token."""
        if self._new:
            self._look()
        return self._cut_events + self._kept.count(_EVENT)

    def usage(self) -> Usage | None:
        if self._new:
            self._look()
        if self._usage is msgspec.UNSET:
            self._usage = find_usage(self._kept[-TAIL_BYTES:])
        return self._usage

    def _look(self) -> None:
        """Takes the new chunks, and cuts off what need not be kept."""
        assert self._new is not None
        text = b"".join((self._kept, *self._new))
        self._new.clear()
        self._new_bytes = 0
        self._usage = msgspec.UNSET
        if (cut := len(text) - TAIL_BYTES) > 0:
            # Those that begin there: the others are counted later.
            self._cut_events += text.count(_EVENT, 0, cut + len(_EVENT) - 1)
            text = text[cut:]
        self._kept = text


def _in_last_object(text: bytes) -> Usage | None:
    """The usage among the direct fields of an object that is all of `text`, or its first line.
    `text` is not empty."""
    if text[-1] != _BRACE:
        text = text.partition(b"\n")[0]
    try:
        answer = _decode_answer(text)
    except _UNREADABLE:  # not JSON, or its usage is no usage
        return None
    for fields in (answer.usage, answer.meta_info):
        if fields is not None and (usage := _usage(fields)) is not None:
            return usage
    return None


def _searched(tail: bytes) -> Usage | None:
    """The usage at any depth, and if the beginning is missing."""
    for name in _NAMES:
        end = len(tail)
        while (start := tail.rfind(name, 0, end)) >= 0:
            brace = tail.find(b"{", start)
            follows = brace >= 0 and tail[start + len(name) : brace].strip() == b":"
            if follows and (usage := _read(tail, brace)):
                return usage
            end = start
    return None


def _read(text: bytes, brace: int) -> Usage | None:
    """The usage whose object begins at `brace`."""
    try:
        found = _fields(text, brace)
    except _UNREADABLE:  # truncated, or not JSON
        return None
    return _usage(found)


def _usage(found: _Fields) -> Usage | None:
    prompt = found.input_tokens if found.prompt_tokens is None else found.prompt_tokens
    output = found.output_tokens if found.completion_tokens is None else found.completion_tokens
    if prompt is None and output is None:
        return None
    details = found.prompt_tokens_details or found.input_tokens_details
    return Usage(prompt, output, found.cached_tokens if details is None else details.cached_tokens)


def _fields(text: bytes, brace: int) -> _Fields:
    """msgspec is ten times as fast as json, but must be told where the object ends. Raises
    ValueError or MsgspecError."""
    end = text.find(b"}", brace) + 1
    while text.count(b"{", brace, end) > text.count(b"}", brace, end):
        end = text.find(b"}", end) + 1
    try:
        return _decode(text[brace:end])
    except msgspec.DecodeError:  # such as a brace within a string
        whole = text[brace:].decode("utf-8", "replace")
        _, length = _scan(whole)
        return _decode(whole[:length])
