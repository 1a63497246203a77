"""Which requests run in a step, and how many wait."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from pando_fleet.choices import described, one_of
from pando_worker.policies.schedule import SCHEDULE_POLICIES


class SchedulingSettings(BaseSettings):
    max_running_requests: Annotated[
        int, Field(ge=1, description="most requests that run at once")
    ] = 256
    max_queued_requests: Annotated[
        int, Field(ge=1, description="most waiting requests; further ones get 503")
    ] = 1024
    chunked_prefill_size: Annotated[
        int, Field(ge=1, description="token budget of a step; longer prompts run in chunks")
    ] = 4096
    overlap_schedule: Annotated[
        bool, Field(description="plan a step while the previous one still runs")
    ] = True
    batching: Annotated[
        Literal["decode-first", "prefill-first"],
        Field(
            description="decode-first: a step runs every stream and fills its budget with prompts;"
            " prefill-first: prompts get whole steps, and streams wait for them"
        ),
    ] = "decode-first"
    schedule_policy: Annotated[
        str,
        one_of(SCHEDULE_POLICIES),
        Field(description=described("which waiting request runs first", SCHEDULE_POLICIES)),
    ] = "lpm"
    max_passed_over: Annotated[
        int, Field(ge=0, description="how many later requests may start before a waiting one")
    ] = 256
    new_token_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="share of max_tokens that is reserved for each running request at first; it"
            " falls while this is enough, and rises with each retraction",
        ),
    ] = 0.7
    watermark: Annotated[
        float, Field(ge=0, lt=1, description="share of the KV pool that admission leaves free")
    ] = 0.01
    image_tokens_per_step: Annotated[
        int,
        Field(
            ge=1,
            description="image tokens that the vision tower computes in a step, of one image at"
            " least; more make streams wait longer beside new images",
        ),
    ] = 1024
    encoder_tokens_per_step: Annotated[
        int,
        Field(
            ge=1,
            description="positions that an encoder-decoder's encoder computes in a step, of one"
            " input at least; more make streams wait longer beside new inputs",
        ),
    ] = 2048
