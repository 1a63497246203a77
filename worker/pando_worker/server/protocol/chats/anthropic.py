"""POST /v1/messages and /v1/messages/count_tokens, Anthropic's API, as chats.

Cache marks (`cache_control`) are accepted and without effect: every prefix is cached.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, with_config
from typing_extensions import TypedDict

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
from pando_worker.server.protocol.chats.turns import AssistantTurn, Message, object_at, string_in
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.resume import CallId
from pando_worker.server.protocol.sampling import MAX_STOP_CHARS, MAX_STOPS, Probability

_UNSUPPORTED: dict[str, Neutral] = {
    "mcp_servers": ([],),
    "container": (),
}
_THINKS = {"enabled": True, "adaptive": True, "disabled": False}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

Block = dict[str, Any]


@with_config(ConfigDict(strict=True))
class Turn(TypedDict):
    """A dictionary, as a chat's messages are."""

    role: Literal["user", "assistant", "system"]
    content: str | Many[Block]


class CountTokensRequest(RequestBody):
    UNSUPPORTED = _UNSUPPORTED

    model: str
    messages: Annotated[Many[Turn], Field(min_length=1)]
    system: str | Many[Block] | None = None
    tools: Many[dict[str, Any]] | None = None
    tool_choice: Any = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def as_chat(self) -> ChatRequest:
        """Raises ApiError 400 for content that cannot be part of a chat."""
        return chat_of(self._chat_fields())

    def _chat_fields(self) -> dict[str, Any]:
        tools = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(self.tools or [])]
        fields = {
            "model": self.model,
            "messages": list(self._chat_messages()),
            "tools": tools or None,
            "continue_final_message": self._is_prefilled(),
            "response_format": _response_format((self.output_config or {}).get("format")),
            "chat_template_kwargs": {
                "enable_thinking": self._thinks,
                **(self.chat_template_kwargs or {}),
            },
        }
        return fields | self._choice()

    @property
    def _thinks(self) -> bool:
        kind = (self.thinking or {"type": "disabled"}).get("type")
        if not isinstance(kind, str) or kind not in _THINKS:
            raise wrong_value("thinking.type", "enabled, adaptive or disabled", kind)
        return _THINKS[kind]

    def _choice(self) -> dict[str, Any]:
        match self.tool_choice:
            case None:
                return {}
            case {"type": ("auto" | "any" | "none") as kind, **rest}:
                choice: Any = _CHOICES[kind]
            case {"type": "tool", "name": str(name), **rest}:
                choice = {"type": "function", "function": {"name": name}}
            case _:
                raise bad_request("tool_choice.type must be auto, any, none, or tool with a name")
        alone = rest.get("disable_parallel_tool_use")
        if not isinstance(alone, bool | None):
            raise wrong_value("tool_choice.disable_parallel_tool_use", "true or false", alone)
        return {"tool_choice": choice, "parallel_tool_calls": not alone}

    def _is_prefilled(self) -> bool:
        """Whether the answer goes on where the last message, the assistant's, ends."""
        last = self.messages[-1]
        if last["role"] != "assistant":
            return False
        blocks = _blocks(last)
        texts = [block.get("text") for block in blocks if block.get("type") == "text"]
        if len(texts) < len(blocks) or not any(texts):
            raise bad_request(
                "the last message is the assistant's; to be continued it must have text alone"
            )
        return True

    def _chat_messages(self) -> Iterator[Message]:
        if self.system:
            yield {"role": "system", "content": _system(self.system)}
        turns = enumerate(self.messages)
        for role, group in groupby(turns, lambda turn: turn[1]["role"]):
            placed = [
                (block, f"messages[{i}].content[{k}]")
                for i, turn in group
                for k, block in enumerate(_blocks(turn))
            ]
            match role:
                case "assistant":
                    yield _assistant(placed)
                case "system":
                    texts = (_text(block, where) for block, where in placed)
                    yield {"role": "system", "content": "\n".join(texts)}
                case "user":
                    yield from _user(placed)


class MessagesRequest(CountTokensRequest):
    UNSUPPORTED = _UNSUPPORTED

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Many[str] = Field(default_factory=list)
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    # Not Anthropic's; as in the other APIs.
    seed: Seed | None = None
    priority: Priority | None = None
    cache_salt: CacheSalt | None = None
    resume_token_ids: Many[TokenId] = Field(default_factory=list)
    resume_call_ids: Many[CallId] = Field(default_factory=list)

    @field_validator("stop_sequences")
    @classmethod
    def _few_and_short(cls, stops: list[str]) -> list[str]:
        if len(stops) > MAX_STOPS or any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
            raise bad_request(
                f"stop_sequences must be at most {MAX_STOPS} strings of 1 to {MAX_STOP_CHARS}"
                " characters"
            )
        return stops

    def _chat_fields(self) -> dict[str, Any]:
        return super()._chat_fields() | {
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "stream": self.stream,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "priority": self.priority,
            "cache_salt": self.cache_salt,
            "resume_token_ids": self.resume_token_ids,
            "resume_call_ids": self.resume_call_ids,
        }


def _response_format(wanted: object) -> dict[str, Any] | None:
    match wanted:
        case None:
            return None
        case {"type": "json_schema", "schema": dict(schema)}:
            answer = {"name": "answer", "schema": schema, "strict": True}
            return {"type": "json_schema", "json_schema": answer}
        case _:
            raise bad_request("output_config.format must be of type json_schema, with a schema")


def _blocks(turn: Turn) -> list[Block]:
    content = turn["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _system(system: str | list[Block]) -> str:
    if isinstance(system, str):
        return system
    return "\n".join(_text(block, f"system[{i}]") for i, block in enumerate(system))


def _text(block: Block, where: str) -> str:
    if block.get("type") != "text":
        raise wrong_value(f"{where}.type", "text", block.get("type"))
    return string_in(block, "text", where)


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise bad_request(
            f"{where}.type must be custom, not {shown(tool['type'])}: tools that run at the server"
            " are not there"
        )
    function = {
        "name": string_in(tool, "name", where),
        "description": tool.get("description") or "",
        "parameters": tool.get("input_schema"),
    }
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    if not isinstance(function["parameters"], dict):
        raise wrong_value(f"{where}.input_schema", "a JSON schema", function["parameters"])
    return {"type": "function", "function": function}


def _user(blocks: list[tuple[Block, str]]) -> Iterator[Message]:
    """Results of tools become messages of their own; what stands between them stays in order."""
    is_result = [block.get("type") == "tool_result" for block, _ in blocks]
    for result, group in groupby(zip(blocks, is_result, strict=True), lambda each: each[1]):
        inner = [placed for placed, _ in group]
        if not result:
            yield {"role": "user", "content": [_part(block, where) for block, where in inner]}
            continue
        for block, where in inner:
            content = block.get("content") or ""
            if not isinstance(content, str | list):
                raise wrong_value(f"{where}.content", "a string or a list of blocks", content)
            if isinstance(content, list):
                content = [
                    _part(object_at(each, f"{where}.content[{i}]"), f"{where}.content[{i}]")
                    for i, each in enumerate(content)
                ]
            call_id = string_in(block, "tool_use_id", where)
            yield {"role": "tool", "tool_call_id": call_id, "content": content}


def _part(block: Block, where: str) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": string_in(block, "text", where)}
        case "image":
            return {"type": "image_url", "image_url": {"url": _image_url(block, where)}}
        case _:
            raise wrong_value(f"{where}.type", "text, image or tool_result", block.get("type"))


def _image_url(block: Block, where: str) -> str:
    match block.get("source"):
        case {"type": "base64", "media_type": str(media), "data": str(data)}:
            return f"data:{media};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
        case _:
            raise bad_request(
                f"{where}.source must be of type base64, with media_type and data, or url"
            )


def _assistant(blocks: list[tuple[Block, str]]) -> Message:
    turn = AssistantTurn()
    for block, where in blocks:
        match block.get("type"):
            case "text":
                turn.texts.append(string_in(block, "text", where))
            case "thinking":
                turn.thoughts.append(string_in(block, "thinking", where))
            case "redacted_thinking":
                pass  # only its maker can read it
            case "tool_use":
                call_id, name = string_in(block, "id", where), string_in(block, "name", where)
                turn.call(call_id, name, object_at(block.get("input"), f"{where}.input"))
            case _:
                raise wrong_value(f"{where}.type", "text, thinking or tool_use", block.get("type"))
    return turn.message()
