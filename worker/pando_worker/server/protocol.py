"""Requests as clients send them: OpenAI's, vLLM's /tokenize and SGLang's /generate.

Unknown fields are tolerated, as OpenAI does. A known field that this worker cannot honour is
refused rather than ignored, unless its value asks for nothing.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pando_worker.server.errors import bad_request

MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_TOKEN_IDS = 1024

Neutral = tuple[object, ...]
"""Values that ask for nothing; so does null."""

TokenId = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(gt=0, le=1)]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    UNSUPPORTED: ClassVar[Mapping[str, Neutral]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, neutral in cls.UNSUPPORTED.items():
                value = data.get(name)
                if value is not None and value not in neutral:
                    raise bad_request(
                        f"{name} is not supported by this worker yet; leave it out",
                        name,
                        "unsupported_parameter",
                    )
        return data


class SamplingFields(_Request):
    """How to sample, in OpenAI's fields and those that vLLM and SGLang add to them."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None  # -1 and 0 keep every token
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: list[str] = []
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_strings(cls, value: object) -> object:
        stops = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
            raise PydanticCustomError("stop", "must be a string or a list of strings")
        if len(stops) > MAX_STOPS:
            raise PydanticCustomError("stop", f"has more than {MAX_STOPS} strings")
        if any(not 1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
            raise PydanticCustomError("stop", f"strings must have 1 to {MAX_STOP_CHARS} characters")
        return stops


_UNSUPPORTED_SAMPLING: dict[str, Neutral] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "n": (1,),
    "best_of": (1,),
    "min_tokens": (0,),
    "min_new_tokens": (0,),
    "logits_processors": ([],),
    "bad_words": ([],),
    "skip_special_tokens": (True,),
    "regex": (),
    "ebnf": (),
    "json_schema": (),
    "structural_tag": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "use_beam_search": (False,),
}


class StreamOptions(_Request):
    include_usage: bool = False


class OpenAIFields(SamplingFields):
    """What chat and text completions share."""

    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None

    @field_validator("stream", mode="before")
    @classmethod
    def _null_is_false(cls, value: object) -> object:
        return False if value is None else value

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> "OpenAIFields":
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options is only allowed with stream: true", "stream_options")
        return self


class ChatMessage(BaseModel):
    """One message. Fields beside role and content (a name, tool calls) reach the chat template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    content: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text_of_parts(cls, value: object) -> object:
        """Joins text parts, since most templates know only strings; as vLLM does, by lines."""
        if not isinstance(value, list):
            return value
        texts = []
        for part in value:
            match part:
                case {"type": "text", "text": str(text)}:
                    texts.append(text)
                case {"type": str(kind)} if kind != "text":
                    raise PydanticCustomError(
                        "content", "has a part of type {kind!r}; this worker reads text only",
                        {"kind": kind[:64]},
                    )  # fmt: skip
                case _:
                    raise PydanticCustomError(
                        "content", "must be a string or a list of {{type: 'text', text: ...}} parts"
                    )
        return "\n".join(texts)


def messages_of(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """As a chat template reads them, with the fields that the client sent."""
    return [message.model_dump(exclude_unset=True) for message in messages]


class ChatRequest(OpenAIFields):
    """POST /v1/chat/completions"""

    UNSUPPORTED = _UNSUPPORTED_SAMPLING | {
        "logprobs": (False,),
        "top_logprobs": (0,),
        "tools": ([],),
        "functions": ([],),
        "tool_choice": ("none", "auto"),
        "response_format": ({"type": "text"},),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
    }

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionRequest(OpenAIFields):
    """POST /v1/completions"""

    UNSUPPORTED = _UNSUPPORTED_SAMPLING | {
        "logprobs": (),
        "prompt_logprobs": (),
        "echo": (False,),
        "suffix": ("",),
        "response_format": ({"type": "text"},),
    }

    prompt: str | list[TokenId]

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt(cls, value: object) -> object:
        return _single_prompt(value)


class NativeSamplingParams(SamplingFields):
    UNSUPPORTED = _UNSUPPORTED_SAMPLING

    max_new_tokens: Annotated[int, Field(ge=1)] = 128  # SGLang's default
    sampling_seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None


class NativeRequest(_Request):
    """POST /generate, SGLang's own form."""

    UNSUPPORTED = {
        "return_logprob": (False,),
        "image_data": (),
        "audio_data": (),
        "video_data": (),
        "input_embeds": (),
        "lora_path": (),
        "return_hidden_states": (False,),
    }

    model: str | None = None
    text: str | None = None
    input_ids: list[TokenId] | None = None
    sampling_params: NativeSamplingParams = NativeSamplingParams()
    stream: bool = False
    rid: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,128}$")] | None = None

    @field_validator("text", "input_ids", mode="before")
    @classmethod
    def _one_prompt(cls, value: object) -> object:
        return _single_prompt(value)

    @model_validator(mode="after")
    def _text_or_ids(self) -> "NativeRequest":
        if (self.text is None) == (self.input_ids is None):
            raise bad_request("give either text or input_ids", "text")
        return self


class TokenizeRequest(_Request):
    """POST /tokenize, of a prompt or of a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = None
    add_special_tokens: bool = True  # of a prompt; a chat template writes its own
    add_generation_prompt: bool = True
    return_token_strs: bool = False
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _prompt_or_messages(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise bad_request("give either prompt or messages", "prompt")
        return self


class DetokenizeRequest(_Request):
    """POST /detokenize"""

    model: str | None = None
    tokens: list[TokenId]


class AbortRequest(_Request):
    """POST /abort_request: `rid` is the request's x-request-id, or the rid given to /generate."""

    rid: str


def _single_prompt(value: object) -> object:
    """Unwraps a list of one prompt, in which some clients send every prompt."""
    if isinstance(value, list) and value and isinstance(value[0], (str, list)):
        if len(value) > 1:
            raise PydanticCustomError(
                "prompt", "has several prompts, which is not supported; send one request for each"
            )
        return value[0]
    return value
