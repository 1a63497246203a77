"""Reads a request's token usage from its answer: a short one is parsed as JSON, which is faster
than any search, and of all others only the end is looked at."""

import json
from typing import Annotated

import msgspec

TAIL_BYTES = 4096
"""How many bytes at the end are searched for the usage; what follows it is far shorter."""

_NAMES = (b'"usage"', b'"meta_info"')  # the latter in /generate, which lacks the former


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


def find_usage(tail: bytes | bytearray) -> Usage | None:
    """The last usage in `tail`, the end of a JSON answer or of a stream of JSON events.

    In generated text the name's quotes are escaped, so it is not mistaken for the answer's own.
    """
    for name in _NAMES:
        end = len(tail)
        while (start := tail.rfind(name, 0, end)) >= 0:
            brace = tail.find(b"{", start)
            follows = brace >= 0 and tail[start + len(name) : brace].strip() == b":"
            if follows and (usage := _read(tail, brace)):
                return usage
            end = start
    return None


class Tail(msgspec.Struct, gc=False):  # made and changed faster than a class with slots
    """The last bytes of an answer, and how many events it had."""

    _new: list[bytes] = []  # chunks that are not yet among the other fields
    _new_bytes: int = 0
    _kept: bytes = b""
    _events: int = 0
    _is_whole: bool = True  # nothing was cut off
    _usage: Usage | None = None  # once it is read: several listeners want it
    _is_read: bool = False

    def add(self, chunk: bytes) -> None:
        self._new.append(chunk)
        self._new_bytes += len(chunk)
        if self._new_bytes > TAIL_BYTES:
            self._look()

    @property
    def events(self) -> int:
        """In streams, about one per token."""
        if self._new:
            self._look()
        return self._events

    def usage(self) -> Usage | None:
        if self._new:
            self._look()
        if not self._is_read:
            self._usage = self._found()
            self._is_read = True
        return self._usage

    def _look(self) -> None:
        """Takes the new chunks together, as looking at each costs more."""
        new = b"".join(self._new)
        self._new.clear()
        self._new_bytes = 0
        self._is_read = False
        self._events += new.count(b"data: {")
        kept = self._kept + new if self._kept else new
        if len(kept) > TAIL_BYTES:
            kept, self._is_whole = kept[-TAIL_BYTES:], False
        self._kept = kept

    def _found(self) -> Usage | None:
        if self._is_whole and self._kept.startswith(b"{"):
            try:
                answer = _decode_answer(self._kept)
            except (ValueError, msgspec.MsgspecError):  # not JSON, or its usage is no usage
                return find_usage(self._kept)
            for fields in (answer.usage, answer.meta_info):
                if fields is not None and (usage := _usage(fields)) is not None:
                    return usage
        return find_usage(self._kept)


def _read(text: bytes | bytearray, brace: int) -> Usage | None:
    """The usage whose object begins at `brace`."""
    try:
        found = _fields(text, brace)
    except (ValueError, msgspec.MsgspecError):  # truncated, or not JSON
        return None
    return _usage(found)


def _usage(found: _Fields) -> Usage | None:
    prompt = found.input_tokens if found.prompt_tokens is None else found.prompt_tokens
    output = found.output_tokens if found.completion_tokens is None else found.completion_tokens
    if prompt is None and output is None:
        return None
    details = found.prompt_tokens_details or found.input_tokens_details
    return Usage(prompt, output, found.cached_tokens if details is None else details.cached_tokens)


def _fields(text: bytes | bytearray, brace: int) -> _Fields:
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
