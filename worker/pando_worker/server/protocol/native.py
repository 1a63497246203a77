"""POST /generate, SGLang's native API."""

from typing import Annotated

from pydantic import Field, model_validator

from pando_worker.server.errors import bad_request
from pando_worker.server.protocol.base import (
    CacheSalt,
    Language,
    Neutral,
    Priority,
    RequestBody,
    Seed,
    TokenId,
)
from pando_worker.server.protocol.openai import TopLogprobs
from pando_worker.server.protocol.pieces import Many
from pando_worker.server.protocol.sampling import UNSUPPORTED_SAMPLING, SamplingFields

_UNSUPPORTED: dict[str, Neutral] = {
    "token_ids_logprob": ([],),
    "audio_data": (),
    "video_data": (),
    "input_embeds": (),
    "lora_path": (),
    "return_hidden_states": (False,),
}


class NativeSamplingParams(SamplingFields):
    UNSUPPORTED = UNSUPPORTED_SAMPLING

    max_new_tokens: Annotated[int, Field(ge=1)] = 128  # SGLang's default
    min_new_tokens: Annotated[int, Field(ge=0)] = 0
    sampling_seed: Seed | None = None


class NativeRequest(RequestBody):
    UNSUPPORTED = _UNSUPPORTED

    model: str | None = None
    text: str | Many[str] | None = None
    input_ids: Many[TokenId] | Many[Many[TokenId]] | None = None
    # URLs, for the image tokens of the only prompt.
    image_data: str | Many[str] | None = None
    sampling_params: NativeSamplingParams = NativeSamplingParams()
    stream: bool = False
    rid: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,128}$")] | None = None
    priority: Priority | None = None
    resume_token_ids: Many[TokenId] = Field(default_factory=list)
    cache_salt: CacheSalt | None = None
    src_lang: Language | None = None  # of models that translate
    tgt_lang: Language | None = None
    return_logprob: bool = False
    logprob_start_len: Annotated[int, Field(ge=-1, lt=2**31)] = -1  # -1: only the output's
    top_logprobs_num: TopLogprobs = 0
    return_text_in_logprobs: bool = False

    @model_validator(mode="after")
    def _text_or_ids(self) -> "NativeRequest":
        if (self.text is None) == (self.input_ids is None):
            raise bad_request("give either text or input_ids", "text")
        return self

    @property
    def image_urls(self) -> list[str]:
        return [self.image_data] if isinstance(self.image_data, str) else self.image_data or []
