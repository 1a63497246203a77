"""Conversations and POST /v1/chat/completions."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pando_fleet.canonical import volatile
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


class TextPart(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["text"]
    text: str


class ImageUrl(BaseModel):
    model_config = ConfigDict(strict=True)

    url: str
    # low: fewer pixels, in models that see images at their own size
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(BaseModel):
    model_config = ConfigDict(strict=True)

    type: Literal["image_url"]
    image_url: ImageUrl


class VideoUrl(BaseModel):
    model_config = ConfigDict(strict=True)

    url: str


class VideoPart(BaseModel):
    """As in vLLM and SGLang."""

    model_config = ConfigDict(strict=True)

    type: Literal["video_url"]
    video_url: VideoUrl


class ChatMessage(BaseModel):
    """One message. Other fields (a name, tool calls) are passed to the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    # A list if there is an image or a video.
    content: str | Many[TextPart | ImagePart | VideoPart] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text_of_parts(cls, value: object) -> object:
        """Joins text parts with newlines, as vLLM does: most templates accept only strings."""
        if not isinstance(value, list):
            return value
        texts = []
        for part in value:
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

    @property
    def text(self) -> str:
        """Of a message without images and videos."""
        return self.content if isinstance(self.content, str) else ""


def without_volatile_line(
    messages: Sequence[ChatMessage],
) -> tuple[Sequence[ChatMessage], str | None]:
    """The messages without a first line that changes with every call, and the form of that line
    (`pando_fleet.canonical.volatile`); the same messages and None if there is none."""
    first = messages[0]
    if first.role not in volatile.SYSTEM_ROLES:
        return messages, None
    text, form = volatile.without_volatile_line(first.text)
    if form is None:
        return messages, None
    return [first.model_copy(update={"content": text}), *messages[1:]], form


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
        fields = message.model_dump(exclude_unset=True)
        fields["content"] = _parts(message) if as_parts else message.text
        if message.role == _DEVELOPER:
            fields["role"] = developer
        if calls := fields.get("tool_calls"):
            fields["tool_calls"] = _with_objects(calls, f"messages[{i}].tool_calls")
        rendered.append(fields)
    return rendered


def _check_whole(message: ChatMessage, param: str) -> None:
    """An assistant's message may have no content: it may have called tools, or thought."""
    if message.content is None and message.role != "assistant":
        raise bad_request(f"{param}.content is required", f"{param}.content")
    if message.role == "tool" and not isinstance((message.model_extra or {}).get(CALL_ID), str):
        raise bad_request(
            f"{param}.{CALL_ID} is required: the id of the call that this message answers",
            f"{param}.{CALL_ID}",
        )


def check_roles(messages: Sequence[ChatMessage], template: str) -> None:
    """Raises ApiError 400 for a role that is not OpenAI's and that the template does not name."""
    known = set(ROLES)
    for i, message in enumerate(messages):
        if message.role in known:
            continue
        if not _names(template, message.role):
            known_roles = f"{', '.join(ROLES[:-1])} or {ROLES[-1]}"
            raise wrong_value(f"messages[{i}].role", known_roles, message.role)
        known.add(message.role)


def _names(template: str, role: str) -> bool:
    return re.search(_QUOTED.format(re.escape(role)), template) is not None


def _parts(message: ChatMessage) -> list[dict[str, str]]:
    if not isinstance(message.content, list):
        return [{"type": "text", "text": message.text}]
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": part.type.removesuffix("_url")}
        for part in message.content
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


def check_continued(last: ChatMessage, add_generation_prompt: bool | None) -> None:
    """Raises ApiError 400 unless a prompt can end with the text of its last message."""
    if add_generation_prompt:
        raise bad_request(
            f"{_CONTINUED} and add_generation_prompt are mutually exclusive", _CONTINUED
        )
    if last.role != "assistant":
        raise bad_request(
            f"{_CONTINUED}: the last message has role {last.role[:40]!r}, not 'assistant'",
            _CONTINUED,
        )
    if (last.model_extra or {}).get("tool_calls") or isinstance(last.content, list):
        raise _not_text_alone()


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
        return self.messages[-1].text if self.continue_final_message else ""

    @model_validator(mode="after")
    def _last_message_can_be_continued(self) -> "ChatRequest":
        if self.continue_final_message:
            check_continued(self.messages[-1], self.add_generation_prompt)
            if not self.messages[-1].text:
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
