"""/v1/responses, OpenAI's. A previous response or a conversation is known to one worker only."""

from typing import Any

import msgspec

from pando_fleet.prefix import responses_bytes
from pando_router.requests.fields import canonical, count, deterministic, priority, text
from pando_router.requests.hints import Hints
from pando_router.requests.request import Request
from pando_router.requests.tools import NO_TOOLS, read_tools


class ResponsesBody(Hints, gc=False, kw_only=True):
    model: str
    input: Any = None
    instructions: Any = None
    tools: msgspec.Raw = NO_TOOLS
    previous_response_id: Any = None
    conversation: Any = None
    max_output_tokens: Any = None


_decode = msgspec.json.Decoder(ResponsesBody).decode


def responses(body: bytes) -> Request:
    fields = _decode(body)
    earlier = text(fields.previous_response_id) or _conversation(fields.conversation)
    return Request(
        model=fields.model,
        prefix=canonical(
            "input",
            responses_bytes,
            fields.input,
            fields.instructions,
            read_tools(fields.tools),
            earlier,
        ),
        max_tokens=count(fields.max_output_tokens),
        stream=fields.stream is True,
        deterministic=deterministic(fields.temperature, fields.seed),
        priority=priority(fields.priority),
        user=text(fields.user) or text(fields.prompt_cache_key),
        cache_salt=text(fields.cache_salt) or "",
        earlier=earlier,
    )


def _conversation(value: Any) -> str | None:
    return text(value.get("id") if isinstance(value, dict) else value)
