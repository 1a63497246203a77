"""OpenAI's responses. Only one replica knows a previous response or a conversation."""

import re
from typing import Any

import msgspec

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import responses_bytes
from pando_router.endpoints.endpoint import CACHE_SALT, MODEL, Endpoint, Replay
from pando_router.endpoints.typed_events import ResponseEvents
from pando_router.migration.form import Form
from pando_router.requests.fields import canonical, count, text
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
    include: Any = None
    top_logprobs: Any = None


def _read(fields: ResponsesBody) -> Request:
    earlier = text(fields.previous_response_id) or _conversation(fields.conversation)
    tools = read_tools(fields.tools)
    images: list[PrefixImage] = []
    return fields.generates(
        fields.model,
        prefix=canonical(
            "input", responses_bytes, fields.input, fields.instructions, tools, earlier, images
        ),
        images=images,
        max_tokens=count(fields.max_output_tokens),
        scored=bool(fields.top_logprobs) or _includes_logprobs(fields.include),
        earlier=earlier,
    )


def _includes_logprobs(include: Any) -> bool:
    return isinstance(include, list) and "message.output_text.logprobs" in include


def _conversation(value: Any) -> str | None:
    return text(value.get("id") if isinstance(value, dict) else value)


_PATH = "/v1/responses"

RESPONSES = Endpoint(
    paths=(_PATH,),
    api="OpenAI",
    placed_by="`tools`, `instructions`, `input`; the same as a chat that says the same",
    body=ResponsesBody,
    read=_read,
    example={"model": MODEL, "input": "What is a tree?"},
    salts=CACHE_SALT,
    replay=Replay(("input",), {"max_output_tokens": 1}),
    migration=Form(
        ResponseEvents(),
        ("input",),
        with_text=None,
        continues_scores=False,  # which tokens of the output have any, only the worker knows
        named=True,
        last_event=b"",
        error_event=b"event: response.failed\n",
        gone=(b'"code":"engine_gone"', b'"code":"engine_stalled"'),
    ),
    answer_name=re.compile(rb'"id"\s*:\s*"(resp_[\w-]+)"'),
)

STORED_PREFIX = _PATH + "/"
"""The path before the id of a response that a replica keeps."""

STORED_METHODS = {"": ("GET", "DELETE"), "/cancel": ("POST",), "/input_items": ("GET",)}
"""The allowed methods, by the path after that id."""
