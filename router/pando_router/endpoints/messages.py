"""Anthropic's messages, and counting their tokens."""

from typing import Any

import msgspec

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import messages_bytes
from pando_router.endpoints.endpoint import MODEL, Endpoint, Replay
from pando_router.endpoints.error_forms import ANTHROPIC
from pando_router.endpoints.typed_events import MessageEvents
from pando_router.migration.events import encoded
from pando_router.migration.form import Form
from pando_router.requests.fields import canonical, count, deterministic, name, priority, text
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


def _messages(fields: MessagesBody) -> Request:
    metadata = fields.metadata if isinstance(fields.metadata, dict) else {}
    tools = read_tools(fields.tools)
    images: list[PrefixImage] = []
    return Request(
        model=fields.model,
        prefix=canonical("messages", messages_bytes, fields.messages, fields.system, tools, images),
        images=tuple(images),
        max_tokens=count(fields.max_tokens),
        stream=fields.stream is True,
        deterministic=deterministic(fields.temperature, fields.seed),
        priority=priority(fields.priority),
        user=name(metadata.get("user_id")),
        cache_salt=text(fields.cache_salt) or "",
    )


def _count_tokens(fields: CountedBody) -> Request:
    return Request(model=fields.model, computes=False)


_EXAMPLE = {"model": MODEL, "messages": [{"role": "user", "content": "What is a tree?"}]}

MESSAGES = Endpoint(
    paths=("/v1/messages",),
    api="Anthropic",
    placed_by="`tools`, `system`, `messages`; `cache_control` is ignored",
    body=MessagesBody,
    read=_messages,
    example={**_EXAMPLE, "max_tokens": 100},
    errors=ANTHROPIC,
    replay=Replay(("messages",), {"max_tokens": 1}),
    migration=Form(
        MessageEvents(),
        ("messages",),
        with_text=None,
        named=True,
        last_event=encoded({"type": "message_stop"}, named=True),
        error_event=b'event: error\ndata: {"type":"error",',
        gone=(b'"overloaded_error"',),
    ),
)

COUNT_TOKENS = Endpoint(
    paths=("/v1/messages/count_tokens",),
    api="Anthropic",
    placed_by="nothing: any replica of the model",
    body=CountedBody,
    read=_count_tokens,
    example=_EXAMPLE,
    errors=ANTHROPIC,
)
