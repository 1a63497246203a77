"""Conversations and POST /v1/chat/completions."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
    with_config,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict  # typing's own says too little for pydantic before 3.12

from pando_fleet.canonical import volatile
from pando_fleet.http.off_loop import let_the_loop_turn
from pando_worker.server.errors import ApiError, bad_request, wrong_value
from pando_worker.server.protocol.openai import OpenAIFields, TopLogprobs
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.resume import CallId
from pando_worker.server.protocol.sampling import UNSUPPORTED_SAMPLING
from pando_worker.server.protocol.validation import validation_error

_CONTINUED = "continue_final_message"


_DEVELOPER = "developer"
ROLES = ("system", _DEVELOPER, "user", "assistant", "tool")
CALL_ID = "tool_call_id"
_QUOTED = "[\"']{}[\"']"


_STRICT = with_config(ConfigDict(strict=True))


@_STRICT
class TextPart(TypedDict):
    type: Literal["text"]
    text: str


@_STRICT
class ImageUrl(TypedDict):
    url: str
    # low: fewer pixels, in models that see images at their own size
    detail: NotRequired[Literal["auto", "low", "high", "original"] | None]


@_STRICT
class ImagePart(TypedDict):
    type: Literal["image_url"]
    image_url: ImageUrl


@_STRICT
class VideoUrl(TypedDict):
    url: str


@_STRICT
class VideoPart(TypedDict):
    """As in vLLM and SGLang."""

    type: Literal["video_url"]
    video_url: VideoUrl


Part = TextPart | ImagePart | VideoPart


def _text_of_parts(value: object) -> object:
    """Joins text parts with newlines, as vLLM does: most templates accept only strings."""
    if not isinstance(value, list):
        return value
    texts = []
    for part in value:
        let_the_loop_turn()
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str()}}:
                pass
            case {"type": "video_url", "video_url": {"url": str()}}:
                pass
            case {"type": ("image_url" | "video_url") as kind}:
                raise PydanticCustomError(
                    "content", "has a part of type '{kind}' without {kind}.url", {"kind": kind}
                )
            case {"type": str(kind)} if kind != "text":
                raise PydanticCustomError(
                    "content",
                    "has a part of type '{kind}', not 'text', 'image_url' or 'video_url'",
                    {"kind": kind[:64]},
                )
            case _:
                raise PydanticCustomError(
                    "content", "must be a string or a list of {type: 'text', text: ...} parts"
                )
    return "\n".join(texts) if len(texts) == len(value) else value


@with_config(ConfigDict(strict=True, extra="allow"))
class ChatMessage(TypedDict):
    """One message. Other fields (a name, tool calls) are passed to the chat template.

    A dictionary, as a chat may have 26,000 of them: Python looks for no garbage in one of texts,
    and frees them in a fifth of the time that as many models take.
    """

    role: str
    # A list if there is an image or a video.
    content: NotRequired[Annotated[str | Many[Part] | None, BeforeValidator(_text_of_parts)]]


def text_of(message: ChatMessage) -> str:
    """Of a message without images and videos."""
    content = message.get("content")
    return content if isinstance(content, str) else ""


def without_volatile_line(
    messages: Sequence[ChatMessage],
) -> tuple[Sequence[ChatMessage], str | None]:
    """The messages without a first line that changes with every call, and the form of that line
    (`pando_fleet.canonical.volatile`); the same messages and None if there is none."""
    first = messages[0]
    if first["role"] not in volatile.SYSTEM_ROLES:
        return messages, None
    text, form = volatile.without_volatile_line(text_of(first))
    if form is None:
        return messages, None
    return [{**first, "content": text}, *messages[1:]], form


def messages_of(
    messages: Sequence[ChatMessage], template: str, *, as_parts: bool = False
) -> list[dict[str, Any]]:
    """Messages as a chat template expects them, with the fields that the client sent.

    Where the template does not name the role `developer`, such a message is the system's: many
    templates would leave it out without a word.
    Templates of models that see get every content as a list of parts, the only form that some know.
    Templates would print null content, which is common beside tool calls, so it becomes empty text.
    They encode the arguments of earlier tool calls themselves, so these are passed as objects.
    Raises ApiError 400 for arguments that are not a JSON object.
    """
    developer = _DEVELOPER if _names(template, _DEVELOPER) else "system"
    rendered = []
    for i, message in enumerate(messages):
        _check_whole(message, f"messages[{i}]")
        fields: dict[str, Any] = {**message}
        fields["content"] = _parts(message) if as_parts else text_of(message)
        if message["role"] == _DEVELOPER:
            fields["role"] = developer
        if calls := fields.get("tool_calls"):
            fields["tool_calls"] = _with_objects(calls, f"messages[{i}].tool_calls")
        rendered.append(fields)
    return rendered


def _check_whole(message: ChatMessage, param: str) -> None:
    """An assistant's message may have no content: it may have called tools, or thought."""
    if message.get("content") is None and message["role"] != "assistant":
        raise bad_request(f"{param}.content is required", f"{param}.content")
    if message["role"] == "tool" and not isinstance(message.get(CALL_ID), str):
        raise bad_request(
            f"{param}.{CALL_ID} is required: the id of the call that this message answers",
            f"{param}.{CALL_ID}",
        )


def check_roles(messages: Sequence[ChatMessage], template: str) -> None:
    """Raises ApiError 400 for a role that is not OpenAI's and that the template does not name."""
    known = set(ROLES)
    for i, message in enumerate(messages):
        role = message["role"]
        if role in known:
            continue
        if not _names(template, role):
            known_roles = f"{', '.join(ROLES[:-1])} or {ROLES[-1]}"
            raise wrong_value(f"messages[{i}].role", known_roles, role)
        known.add(role)


def _names(template: str, role: str) -> bool:
    return re.search(_QUOTED.format(re.escape(role)), template) is not None


def _parts(message: ChatMessage) -> list[dict[str, str]]:
    content = message.get("content")
    if not isinstance(content, list):
        return [{"type": "text", "text": text_of(message)}]
    return [
        {"type": "text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": part["type"].removesuffix("_url")}
        for part in content
    ]


def _with_objects(calls: Any, param: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise wrong_value(param, "a list", calls)
    rendered = []
    for i, call in enumerate(calls):
        match call:
            case {"function": {"name": str(), **function}}:
                arguments: Any = function.get("arguments")
            case _:
                raise bad_request(f"{param}[{i}] must have a function with a name", param)
        if not isinstance(arguments, dict):
            try:
                arguments = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
            except (msgspec.DecodeError, TypeError) as error:
                where = f"{param}[{i}].function.arguments"
                raise bad_request(f"{where} is not a JSON object: {error}", where) from error
        rendered.append(call | {"function": call["function"] | {"arguments": arguments}})
    return rendered


def check_continued(messages: Sequence[ChatMessage], add_generation_prompt: bool | None) -> None:
    """Raises ApiError 400 unless a prompt can end with the text of its last message."""
    last = messages[-1]
    if add_generation_prompt:
        raise bad_request(
            f"{_CONTINUED} and add_generation_prompt are mutually exclusive", _CONTINUED
        )
    if (role := last["role"]) != "assistant":
        raise bad_request(
            f"{_CONTINUED}: the last message has role {role[:40]!r}, not 'assistant'",
            _CONTINUED,
        )
    if last.get("tool_calls") or isinstance(last.get("content"), list):
        raise _not_text_alone()
    if len(messages) == 1:
        raise bad_request(
            "the last message, the assistant's, is continued: messages must have another before it",
            "messages",
        )


def _not_text_alone() -> ApiError:
    return bad_request(
        f"{_CONTINUED}: the last message must have text and no tool calls", _CONTINUED
    )


_NO_THINKING = ("none", "minimal")  # efforts


def template_arguments(given: dict[str, Any] | None, effort: str | None) -> dict[str, Any]:
    """For the chat template: a request's effort by the names that templates know, and its
    `chat_template_kwargs`, which go before."""
    if effort is None:
        return given or {}
    told = {"reasoning_effort": effort, "enable_thinking": effort not in _NO_THINKING}
    return told | (given or {})


class ChatRequest(OpenAIFields):
    UNSUPPORTED = UNSUPPORTED_SAMPLING | {
        "prompt_logprobs": (),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "web_search_options": (),
        "mm_processor_kwargs": ({},),
        "media_io_kwargs": ({},),
    }

    messages: Annotated[Many[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    # Read by `parsers.tools.read_tool_use`.
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    resume_call_ids: Many[CallId] = Field(default_factory=list)
    # Named as in vLLM and SGLang: the answer continues the last message, an assistant's.
    continue_final_message: bool = False
    add_generation_prompt: bool | None = None  # None: unless the last message is continued

    @property
    def template_kwargs(self) -> dict[str, Any]:
        return template_arguments(self.chat_template_kwargs, self.reasoning_effort)

    @property
    def continued_text(self) -> str:
        """The text that the answer continues but does not repeat; usually empty."""
        return text_of(self.messages[-1]) if self.continue_final_message else ""

    @model_validator(mode="after")
    def _last_message_can_be_continued(self) -> "ChatRequest":
        if self.continue_final_message:
            check_continued(self.messages, self.add_generation_prompt)
            if not text_of(self.messages[-1]):
                raise _not_text_alone()
        return self

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> "ChatRequest":
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs is only allowed with logprobs: true", "top_logprobs")
        return self


def chat_of(fields: dict[str, Any]) -> ChatRequest:
    """A chat that another API's request is. Raises ApiError 400, as for a chat's own body."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        raise validation_error(RequestValidationError(error.errors()), ChatRequest) from None
