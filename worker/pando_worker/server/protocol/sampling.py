"""Sampling fields: OpenAI's, and those that vLLM and SGLang add."""

from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from pando_worker.server.protocol.base import Neutral, RequestBody, Seed, TokenId
from pando_worker.server.protocol.pieces import Many

MAX_STOPS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_TOKEN_IDS = 1024
MAX_BIASES = 1024
MAX_SAMPLES = 128

CONSTRAINTS = (
    "json_schema",
    "regex",
    "ebnf",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
)

Probability = Annotated[float, Field(gt=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Samples = Annotated[int, Field(ge=1, le=MAX_SAMPLES)]

UNSUPPORTED_SAMPLING: dict[str, Neutral] = {
    "structural_tag": (),
    "guided_whitespace_pattern": (),
    "logits_processors": ([],),
    "bad_words": ([],),
    "use_beam_search": (False,),
}


class SamplingFields(RequestBody):
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None  # -1 and 0 keep every token
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: Annotated[dict[int, Bias], Field(max_length=MAX_BIASES)] | None = None
    seed: Seed | None = None
    n: Samples | None = None
    stop: Many[str] = Field(default_factory=list)
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    # SGLang's constraints, read by `server/jobs/constraints.py`.
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None

    def constraints(self) -> dict[str, Any]:
        """The given fields that constrain the output, by name."""
        fields = ((name, getattr(self, name, None)) for name in CONSTRAINTS)
        return {name: value for name, value in fields if value is not None}

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

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _ids_of_names(cls, value: object) -> object:
        """Token ids from JSON's keys, which are strings."""
        if not isinstance(value, dict):
            return value
        if any(not (name.isascii() and name.isdecimal() and len(name) < 10) for name in value):
            raise PydanticCustomError("logit_bias", "must map token ids to numbers")
        return {int(name): bias for name, bias in value.items()}
