"""A cost model's file: JSON with units in its field names, as `pando sim calibrate` writes it."""

from typing import Annotated

import msgspec
from msgspec import Meta

NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class CostModelError(Exception):
    """There is no such cost model, or its file is invalid or lacks something; one line."""


class StepCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The coefficients of a step; `model.py` has the formula."""

    step_s: Positive  # of any step: launching it, and reading the weights
    token_s: NotNegative  # of a token, prompt or decode, after the first free ones
    free_tokens: NotNegative = 0.0  # their arithmetic takes no longer than reading the weights
    prefill_step_s: NotNegative = 0.0  # added for a step with prompt tokens
    prefill_context_s: NotNegative  # per pair of a prompt token and a token that it sees
    decode_row_s: NotNegative = 0.0  # per decoding request, besides its token
    decode_context_s: NotNegative  # per token that a decode reads from the cache


class RequestCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP server's time: from a request's arrival until the scheduler has it, and from its
    first token until it is sent."""

    request_s: NotNegative = 0.0
    prompt_token_s: NotNegative = 0.0  # added per token of the prompt


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the measured worker reported, or the source says about its pool."""

    capacity_tokens: Count  # of the KV pool
    context_length: Count | None = None
    page_size: Count | None = None
    chunked_prefill_size: Count | None = None
    max_running_requests: Count | None = None


class Quality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How well the coefficients predict the observations."""

    observations: Count
    median_error: NotNegative  # share of the observed time, or rate
    largest_error: NotNegative


class CostFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker of one kind: one model on one machine."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    model: str
    machine: str
    source: str  # origin of the numbers, in a sentence
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]  # of the measurement
    arithmetic: tuple[str, ...] = ()  # how the coefficients follow from the source
    step: StepCost
    request: RequestCost = RequestCost()
    worker: WorkerFacts | None = None
    start_s: Positive | None = None  # from a replica's creation until it is ready
    # Keys and values of all layers, and the speed of copies between the device's and the host's
    # memory; only a simulated host tier needs them.
    kv_bytes_per_token: Count | None = None
    copy_bytes_per_s: Positive | None = None
    quality: Quality | None = None
