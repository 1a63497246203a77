"""/v1/messages and /v1/messages/count_tokens, Anthropic's."""

from typing import Any

import msgspec

from pando_fleet.prefix import messages_bytes
from pando_router.requests.fields import canonical, count, deterministic, priority, text
from pando_router.requests.request import Request
from pando_router.requests.tools import NO_TOOLS, read_tools


class MessagesBody(msgspec.Struct, gc=False):
    model: str
    messages: list[Any]
    system: Any = None
    tools: msgspec.Raw = NO_TOOLS
    max_tokens: Any = None
    stream: Any = None
    temperature: Any = None
    seed: Any = None
    priority: Any = None
    metadata: Any = None
    cache_salt: Any = None


class CountedBody(msgspec.Struct, gc=False):
    model: str


_decode = msgspec.json.Decoder(MessagesBody).decode
_decode_counted = msgspec.json.Decoder(CountedBody).decode


def messages(body: bytes) -> Request:
    fields = _decode(body)
    metadata = fields.metadata if isinstance(fields.metadata, dict) else {}
    return Request(
        model=fields.model,
        prefix=canonical(
            "messages", messages_bytes, fields.messages, fields.system, read_tools(fields.tools)
        ),
        max_tokens=count(fields.max_tokens),
        stream=fields.stream is True,
        deterministic=deterministic(fields.temperature, fields.seed),
        priority=priority(fields.priority),
        user=text(metadata.get("user_id")),
        cache_salt=text(fields.cache_salt) or "",
    )


def count_tokens(body: bytes) -> Request:
    return Request(model=_decode_counted(body).model, computes=False)
