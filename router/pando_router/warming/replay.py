"""Shortens a request to the beginning of its prompt, and to an answer of one token.

A system message is sent with the first letter of the message after it, because many chat templates
refuse a conversation without a user message. A request that cannot be shortened is sent whole. The
result is always checked to begin with the wanted prefix.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.endpoints import ENDPOINTS, Endpoint
from pando_router.errors import ApiError
from pando_router.requests.fields import is_many
from pando_router.warming.prefixes import SentRequest

TOKEN_ID_BYTES = 4  # bytes of a token id in a prompt's canonical bytes

# Fields that affect only the answer, not the length of the prompt.
_OF_THE_ANSWER = frozenset(
    [
        *("stream", "stream_options", "n", "best_of", "stop", "echo", "logprobs", "top_logprobs"),
        *("logit_bias", "min_tokens", "max_completion_tokens", "response_format"),
        *("sampling_params", "store", "background"),
    ]
)


def prefill(source: SentRequest, chunks: int) -> bytes:
    """The body to send, whose prompt begins with the first `chunks` chunks of the source's.

    The source's endpoint must have a `replay`. Raises ApiError if the source is not a valid request
    (then it was never answered).
    """
    endpoint = ENDPOINTS[source.path]
    replay = endpoint.replay
    assert replay is not None
    fields: dict[str, Any] = msgspec.json.decode(source.body)
    fields = {name: value for name, value in fields.items() if name not in _OF_THE_ANSWER}
    fields |= replay.one_token
    wanted = endpoint.parse(source.body).prefix[: chunks * CHUNK_BYTES]
    name = next(name for name in replay.prompt if fields.get(name) is not None)
    cut = _cut(endpoint, fields, name, len(wanted))
    return cut if endpoint.parse(cut).prefix.startswith(wanted) else msgspec.json.encode(fields)


def _cut(endpoint: Endpoint[Any], fields: dict[str, Any], name: str, size: int) -> bytes:
    """The body with the shortest prompt (the field `name`) of at least `size` canonical bytes."""
    value = fields[name]

    def encoded(shorter: Any) -> bytes:
        return msgspec.json.encode({**fields, name: shorter})

    if is_many(value):
        value = value[0]  # of several prompts, the first one decides
    if not value:  # the whole prompt is in other fields, such as tools
        return msgspec.json.encode(fields)
    surplus = len(endpoint.parse(encoded(value)).prefix) - size
    if isinstance(value, str):
        return encoded(_shorter(value, surplus))
    if isinstance(value[0], int):
        return encoded(value[: len(value) - surplus // TOKEN_ID_BYTES])
    enough = _fewest(len(value), lambda count: _size(endpoint, encoded(value[:count])) >= size)
    surplus = _size(endpoint, encoded(value[:enough])) - size
    return encoded(_end(value, enough, surplus))


def _end(messages: list[Any], enough: int, surplus: int) -> list[Any]:
    """The first `enough` messages, the last one shortened by `surplus` bytes."""
    kept, last = messages[: enough - 1], messages[enough - 1]
    if not isinstance(last, dict) or not isinstance(last.get("content"), str):
        return messages[:enough]
    kept.append({**last, "content": _shorter(last["content"], surplus)})
    if last.get("role") in ("system", "developer") and enough < len(messages):
        after = messages[enough]
        if isinstance(after, dict) and isinstance(after.get("content"), str):
            after = {**after, "content": after["content"][:1]}
        kept.append(after)
    return kept


def _shorter(text: str, surplus: int) -> str:
    """`text` without its last `surplus` bytes, or fewer, so that no character is split."""
    encoded = text.encode("utf-8", "surrogatepass")
    end = len(encoded) - max(0, surplus)
    while 0 < end < len(encoded) and encoded[end] & 0xC0 == 0x80:
        end += 1
    return encoded[: max(0, end)].decode("utf-8", "surrogatepass")


def _fewest(most: int, is_enough: Callable[[int], bool]) -> int:
    """The smallest number from 1 to `most` for which `is_enough` is true; it is for `most`."""
    few, enough = 0, most
    while enough - few > 1:
        middle = (few + enough) // 2
        if is_enough(middle):
            enough = middle
        else:
            few = middle
    return enough


def _size(endpoint: Endpoint[Any], body: bytes) -> int:
    """Canonical bytes of the prompt; 0 if the body is invalid when cut there."""
    try:
        return len(endpoint.parse(body).prefix)
    except ApiError:
        return 0
