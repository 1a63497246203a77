"""/v1/chat/completions, OpenAI's."""

from typing import Any

import msgspec

from pando_fleet.prefix import chat_bytes
from pando_router.requests.fields import canonical, count, deterministic, priority, text
from pando_router.requests.hints import Hints
from pando_router.requests.request import Request
from pando_router.requests.tools import NO_TOOLS, read_tools


class ChatBody(Hints, gc=False, kw_only=True):
    model: str
    messages: list[Any]
    tools: msgspec.Raw = NO_TOOLS
    functions: msgspec.Raw = NO_TOOLS  # what tools were called first
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None


_decode = msgspec.json.Decoder(ChatBody).decode


def chat(body: bytes) -> Request:
    fields = _decode(body)
    tools = read_tools(fields.tools) or read_tools(fields.functions)
    return Request(
        model=fields.model,
        prefix=canonical("messages", chat_bytes, fields.messages, tools),
        max_tokens=count(fields.max_completion_tokens) or count(fields.max_tokens),
        stream=fields.stream is True,
        n=count(fields.n) or 1,
        deterministic=deterministic(fields.temperature, fields.seed),
        priority=priority(fields.priority),
        user=text(fields.user) or text(fields.prompt_cache_key),
        cache_salt=text(fields.cache_salt) or "",
    )
