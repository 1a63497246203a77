"""OpenAI's chat completions."""

from typing import Any

import msgspec

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import chat_bytes
from pando_router.endpoints.endpoint import CACHE_SALT, MODEL, Endpoint, Replay
from pando_router.endpoints.openai_events import OpenAIEvents
from pando_router.migration.errors import RefusedError
from pando_router.migration.form import Body, Form
from pando_router.requests.fields import canonical, count, wanted
from pando_router.requests.hints import Hints
from pando_router.requests.request import Request
from pando_router.requests.tools import NO_TOOLS, read_tools


class ChatBody(Hints, gc=False, kw_only=True):
    model: str
    messages: list[Any]
    tools: msgspec.Raw = NO_TOOLS
    functions: msgspec.Raw = NO_TOOLS  # the older name of `tools`
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None
    logprobs: Any = None


def _read(fields: ChatBody) -> Request:
    tools = read_tools(fields.tools, fields.functions)
    images: list[PrefixImage] = []
    return fields.generates(
        fields.model,
        prefix=canonical("messages", chat_bytes, fields.messages, tools, images),
        images=images,
        max_tokens=count(fields.max_completion_tokens, fields.max_tokens),
        n=count(fields.n) or 1,
        scored=wanted(fields.logprobs),
    )


def _with_text(body: Body, name: str, text: str) -> Body:
    """Continues the answer as an unfinished assistant message."""
    messages = list(body[name])
    if body.get("continue_final_message"):
        last = messages.pop()
        if not isinstance(last.get("content"), str):
            raise RefusedError("its last message has parts, which text cannot continue")
        text = last["content"] + text
    messages.append({"role": "assistant", "content": text})
    return {name: messages, "continue_final_message": True, "add_generation_prompt": False}


CHAT = Endpoint(
    paths=("/v1/chat/completions",),
    api="OpenAI",
    placed_by="`tools`, then `messages`; images, videos by their bytes, audio, files by a digest",
    body=ChatBody,
    read=_read,
    example={"model": MODEL, "messages": [{"role": "user", "content": "What is a tree?"}]},
    salts=CACHE_SALT,
    replay=Replay(("messages",), {"max_tokens": 1}),
    migration=Form(OpenAIEvents(), ("messages",), _with_text),
)
