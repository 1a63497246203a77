"""Reads a request's token usage from the end of its answer, without parsing the rest."""

import json
from dataclasses import dataclass

TAIL_BYTES = 4096
"""How many bytes at the end are searched for the usage; what follows it is far shorter."""

_NAMES = (b'"usage"', b'"meta_info"')  # the latter in /generate
_PROMPT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_CACHED = ("cached_tokens",)
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as far as the answer reports them: an embedding has no output, and Anthropic's
    streams report the prompt at their beginning."""

    prompt: int | None
    output: int | None
    cached: int | None = None  # of the prompt; some engines must be configured to report it


def find_usage(tail: bytes) -> Usage | None:
    """The last usage in `tail`, the end of a JSON answer or of a stream of JSON events.

    In generated text the name's quotes are escaped, so it is not mistaken for the answer's own.
    """
    end = len(tail)
    while (start := max(tail.rfind(name, 0, end) for name in _NAMES)) >= 0:
        brace = tail.find(b"{", start)
        follows = brace >= 0 and tail[start:brace].partition(b":")[2].strip() == b""
        if follows and (usage := _read(tail[brace:])):
            return usage
        end = start
    return None


class Tail:
    """The last bytes of an answer, and how many events it had."""

    __slots__ = ("_kept", "events")

    def __init__(self) -> None:
        self._kept = bytearray()
        self.events = 0  # in streams, about one per token

    def add(self, chunk: bytes) -> None:
        self.events += chunk.count(b"data: {")
        self._kept += chunk if len(chunk) <= TAIL_BYTES else chunk[-TAIL_BYTES:]
        if len(self._kept) > 4 * TAIL_BYTES:
            del self._kept[:-TAIL_BYTES]

    def usage(self) -> Usage | None:
        return find_usage(bytes(self._kept[-TAIL_BYTES:]))


def _read(text: bytes) -> Usage | None:
    try:
        found, _ = _decoder.raw_decode(text.decode("utf-8", "replace"))
    except ValueError:  # truncated, or not JSON
        return None
    prompt, output = _count(found, _PROMPT), _count(found, _OUTPUT)
    if prompt is None and output is None:
        return None
    return Usage(prompt, output, _cached(found))


def _cached(found: dict[str, object]) -> int | None:
    for name in _DETAILS:
        details = found.get(name)
        if isinstance(details, dict):
            return _count(details, _CACHED)
    return _count(found, _CACHED)


def _count(found: dict[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = found.get(name)
        if type(value) is int and value >= 0:
            return value
    return None
