"""POST /v1/responses, OpenAI's API, as a chat."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from pando_worker.parsers.tools import MAX_TOOLS
from pando_worker.server.errors import bad_request, shown, wrong_value
from pando_worker.server.protocol.base import (
    CacheSalt,
    Neutral,
    Priority,
    RequestBody,
    Seed,
    TokenId,
)
from pando_worker.server.protocol.chats.chat import ChatRequest, chat_of
from pando_worker.server.protocol.chats.response_items import Item, chat_messages
from pando_worker.server.protocol.openai import TopLogprobs
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.resume import CallId, ResponseId
from pando_worker.server.protocol.sampling import Probability

_UNSUPPORTED: dict[str, Neutral] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "context_management": ([],),
}
MAX_METADATA = 16
_LOGPROBS = "message.output_text.logprobs"
# Reasoning is plain text here, and always there.
_INCLUDES = (_LOGPROBS, "reasoning.encrypted_content")


class ResponsesRequest(RequestBody):
    UNSUPPORTED = _UNSUPPORTED

    model: str
    input: str | Many[Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None  # None is true
    stream: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_logprobs: TopLogprobs | None = None
    tools: Many[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: Many[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Field(max_length=MAX_METADATA)] | None = None
    # Not OpenAI's; as in the other APIs.
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    seed: Seed | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None
    resume_token_ids: Many[TokenId] = Field(default_factory=list)
    resume_call_ids: Many[CallId] = Field(default_factory=list)
    resume_response_id: ResponseId | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @field_validator("include")
    @classmethod
    def _nothing_more(cls, include: list[str] | None) -> list[str] | None:
        for name in include or ():
            if name not in _INCLUDES:
                raise bad_request(f"include: {name[:60]!r} is not supported", "include")
        return include

    @property
    def items(self) -> list[Item]:
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    @property
    def logprobs(self) -> int | None:
        """The most likely tokens beside each token of a text; None without log-probabilities."""
        if self.top_logprobs or _LOGPROBS in (self.include or ()):
            return self.top_logprobs or 0
        return None

    @property
    def format(self) -> dict[str, Any]:
        """Of the text."""
        found = (self.text or {}).get("format") or {"type": "text"}
        if not isinstance(found, dict):
            raise wrong_value("text.format", "an object", found)
        return found

    @property
    def effort(self) -> str | None:
        """Of reasoning."""
        effort = (self.reasoning or {}).get("effort")
        if not isinstance(effort, str | None):
            raise wrong_value("reasoning.effort", "a string", effort)
        return effort

    def turns(self, earlier: Sequence[Item]) -> list[int]:
        """Where the turns of the conversation begin, each with a message of the user: the first of
        its items, counted from the first of `earlier`."""
        items = [*earlier, *self.items]
        return [number for number, item in enumerate(items) if item.get("role") == "user"]

    def as_chat(self, earlier: Sequence[Item], *, dropped: int = 0) -> ChatRequest:
        """
        Args:
            earlier: the items of the previous response, its input included
            dropped: the number of first items to leave out

        Raises ApiError 400 for items that cannot be part of a chat.
        """
        placed = [(item, "previous_response_id") for item in earlier]
        placed += [(item, f"input[{i}]") for i, item in enumerate(self.items)]
        messages = list(chat_messages(placed[dropped:]))
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        if not messages:
            raise bad_request("input must not be empty", "input")
        tools = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(self.tools or [])]
        fields = {
            "model": self.model,
            "messages": messages,
            "max_completion_tokens": self.max_output_tokens,
            "tools": tools or None,
            "tool_choice": _choice(self.tool_choice),
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": _response_format(self.format),
            "reasoning_effort": self.effort,
            "logprobs": self.logprobs is not None,
            "top_logprobs": self.logprobs,
        }
        alike = (
            *("stream", "temperature", "top_p", "top_k", "seed", "priority", "cache_salt"),
            *("chat_template_kwargs", "resume_token_ids", "resume_call_ids"),
        )
        return chat_of(fields | {name: getattr(self, name) for name in alike})


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    if (kind := tool.get("type")) != "function":
        raise bad_request(
            f"{where}.type must be function, not {shown(kind)}: tools that run at the server"
            " are not there",
            f"{where}.type",
        )
    if not isinstance(tool.get("name"), str):
        raise wrong_value(f"{where}.name", "a string", tool.get("name"))
    function = {name: value for name, value in tool.items() if name != "type" and value is not None}
    return {"type": "function", "function": function}


def _choice(choice: object) -> object:
    match choice:
        case None | "auto" | "none" | "required":
            return choice
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": list(tools)} if (
            1 <= len(tools) <= MAX_TOOLS
        ):
            allowed = [_allowed(tool, i) for i, tool in enumerate(tools)]
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
        case _:
            raise bad_request(
                "tool_choice must be 'none', 'auto', 'required', {'type': 'function', 'name': ...}"
                " or {'type': 'allowed_tools', 'mode': 'auto' or 'required', 'tools': [1 to"
                f" {MAX_TOOLS}]}}",
                "tool_choice",
            )


def _allowed(tool: object, index: int) -> dict[str, Any]:
    match tool:
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
        case _:
            raise bad_request(
                f"tool_choice.tools[{index}] must be {{'type': 'function', 'name': ...}}",
                "tool_choice",
            )


def _response_format(format: dict[str, Any]) -> dict[str, Any] | None:
    match format:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return format
        case {"type": "json_schema", "name": str(), "schema": dict(), **_rest}:
            schema = {name: value for name, value in format.items() if name != "type"}
            return {"type": "json_schema", "json_schema": schema}
        case _:
            raise bad_request(
                "text.format must be of type text, json_object, or json_schema with a name and a"
                " schema",
                "text.format",
            )
