"""Which model a worker serves, and how requests to it are read by default."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from pando_fleet.choices import described, one_of
from pando_worker.parsers.registry import REASONING_FORMATS, TOOL_FORMATS


def _name_of(model: str) -> str:
    path = Path(model)
    if path.name in ("", ".."):
        path = path.resolve()
    if path.parent.name == "snapshots":  # a repository in the hub's cache, by its revision
        path = path.parent.parent
    return path.name.rpartition("--")[2] if path.name.startswith("models--") else path.name


class ModelSettings(BaseSettings):
    model: Annotated[
        str,
        Field(
            description="model directory or hub id in Hugging Face format; a GGUF file: a path, a"
            " folder with one, org/name:FILE.gguf of the hub; or, from Python packages, smollm2 or"
            " all-minilm-l6-v2"
        ),
    ]
    served_model_name: Annotated[
        str | None,
        Field(description="name in the API; by default the last part of the model's path"),
    ] = None
    load_format: Annotated[
        Literal["auto", "dummy"],
        Field(description="dummy: random weights for measurements; only config.json is read"),
    ] = "auto"
    model_impl: Annotated[
        Literal["auto", "pando", "transformers"],
        Field(
            description="which code runs the model: pando has some families, transformers most"
            " decoders; auto takes transformers for models that pando lacks"
        ),
    ] = "auto"
    default_temperature: Annotated[
        float | None,
        Field(ge=0, description="of requests that name none, instead of the model's own default"),
    ] = None
    default_top_p: Annotated[
        float | None, Field(gt=0, le=1, description="as default_temperature")
    ] = None
    default_top_k: Annotated[
        int | None, Field(ge=0, description="as default_temperature; 0 keeps every token")
    ] = None
    default_min_p: Annotated[
        float | None, Field(ge=0, le=1, description="as default_temperature")
    ] = None
    default_repetition_penalty: Annotated[
        float | None, Field(ge=0.01, le=100, description="as default_temperature")
    ] = None
    context_length: Annotated[
        int | None,
        Field(ge=1, description="tokens a request may have; by default the model's limit"),
    ] = None
    pooling: Annotated[
        Literal["auto", "last", "mean", "cls", "max"],
        Field(
            description="which hidden states make an embedding: the last token's, the mean of all,"
            " the first token's, or each number's largest; auto: as in the model's 1_Pooling, else"
            " the mean for text encoders and the last for other models"
        ),
    ] = "auto"
    tool_call_parser: Annotated[
        str,
        one_of(TOOL_FORMATS, "auto"),
        Field(
            description="format of the model's tool calls; auto: read from its chat template. Where"
            " the template shows no tools it is Pando's own, which shows them"
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        str,
        one_of(REASONING_FORMATS, "auto", "none"),
        Field(
            description=described(
                "where the model's reasoning stands; auto: read from its chat template",
                REASONING_FORMATS,
            )
        ),
    ] = "auto"
    drop_volatile_lines: Annotated[
        bool,
        Field(
            description="leave the first lines that agents write anew for every call out of"
            " prompts, so that the rest is found in the cache (docs/agents.md)"
        ),
    ] = True

    @property
    def served_name(self) -> str:
        """The name in the API: by default that of the model's folder, file or hub repository."""
        return self.served_model_name or _name_of(self.model)
