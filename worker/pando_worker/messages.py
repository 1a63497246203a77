"""What the worker's two kinds of process say to each other.

The HTTP process (tokenizer, detokenizer) sends `Command`s to the scheduler process; the scheduler
answers with `Event`s. Both travel as msgspec MessagePack over ZeroMQ PUSH/PULL pairs; one ZeroMQ
message is one struct. Text never crosses this border: stop strings are the detokenizer's business,
and end-of-sequence tokens arrive here as plain `stop_token_ids`.
"""

from enum import StrEnum

import msgspec

BATCH_SIZES = tuple(2**power for power in range(10))


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one request picks its next tokens; validated by the HTTP process."""

    max_new_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 keeps every token
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0  # 64 bits; the HTTP process draws one where the client named none
    stop_token_ids: tuple[int, ...] = ()  # with the model's EOS ids, unless they are ignored
    min_new_tokens: int = 0  # no stop token before
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}


class LogprobsWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Log-probabilities to report, under the model's distribution before any of the above."""

    top: int = 0  # most likely tokens beside the one that was produced
    prompt_start: int | None = None  # also of the prompt, from this position on (0 itself has none)


class FinishReason(StrEnum):
    # A stop token was produced, and is the output's last token; or the grammar is at its end.
    STOP = "stop"
    LENGTH = "length"  # max_new_tokens or the context's end was reached
    ABORT = "abort"  # the HTTP process asked for it


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run one request. Answered by `Output`s, the last one with `finish`, or by one `Rejected`."""

    rid: str
    input_ids: list[int]
    num_output: int = 0  # the last of these are output: the request goes on where it was lost
    sampling: SamplingParams
    logprobs: LogprobsWanted | None = None
    grammar: str | None = None  # in llguidance's serialized form; the output follows it
    priority: int = 0  # higher first, under the policy "priority"
    namespace: bytes = b""  # whose cached prefixes it shares; see memory/namespace.py
    deadline_s: float | None = None  # seconds from now, then it ends with status 504


class Pooling(StrEnum):
    """Which final hidden states make an embedding."""

    LAST = "last"  # the last token's
    MEAN = "mean"  # the mean over all tokens


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Embed one prompt. Answered by one `Embedded` or `Rejected`; if aborted, by an `Output`."""

    rid: str
    input_ids: list[int]
    pooling: Pooling
    priority: int = 0
    namespace: bytes = b""
    deadline_s: float | None = None


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Stop a request wherever it is. Unknown or finished ids are ignored; otherwise the
    scheduler answers with an `Output` whose finish is ABORT after the step in flight."""

    rid: str


class FlushCache(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Forget all cached prefixes. Answered by `CacheFlushed`."""

    call: int


Command = Generate | Embed | Abort | FlushCache


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    logprob: float
    top_ids: list[int] = []  # most likely first
    top_logprobs: list[float] = []


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New tokens of one request."""

    rid: str
    token_ids: list[int]
    cached_tokens: int  # prompt tokens that came from the cache when it was first scheduled
    finish: FinishReason | None = None
    queue_s: float | None = None  # with the first output: from arrival to first scheduling
    logprobs: list[TokenLogprob] = []  # of `token_ids`, where wanted
    # Of the prompt's tokens from max(1, prompt_start) on, once, with the first output.
    prompt_logprobs: list[TokenLogprob] = []


class Outputs(msgspec.Struct, frozen=True, tag=True):
    """All that one scheduler step produced."""

    outputs: list[Output]


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    rid: str
    vector: bytes  # float32, little-endian, [hidden_size], of length 1
    cached_tokens: int
    queue_s: float


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request that ends with an error; it may have produced tokens before."""

    rid: str
    message: str
    # 400: it can never fit, or its grammar is wrong; 503: the queue is full; 504: its deadline
    # passed; 500: it failed while running.
    status: int


class CacheFlushed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    done: bool  # False: requests were running or waiting


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first event: the model is loaded and the pools are sized."""

    capacity_tokens: int
    max_running_requests: int
    max_request_tokens: int  # prompt and output of one request together
    page_size: int


class Working(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The scheduler is about to wait for the model, and may say nothing for so long."""

    seconds: float


class Stats(msgspec.Struct, kw_only=True, tag=True):
    """The scheduler's state; sent when it changed, at most every 50 ms, and every 500 ms anyway.

    Counters (`*_total`) only grow. Rates are smoothed over the last seconds and are 0 until
    something was measured. Heartbeats carry the fields that they have by the same name.
    """

    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0  # uncached prompt tokens of the waiting queue
    waiting_output_tokens: int = 0  # that the waiting queue is expected to produce
    capacity_tokens: int = 0
    # Held by running requests: of this pool, or of the window layers' own if that is fuller, as the
    # same share of the capacity.
    pinned_tokens: int = 0
    cached_tokens: int = 0  # held by the radix cache alone: evictable
    prefill_tokens_per_s: float = 0.0  # while prefilling, running decodes included in the time
    prefill_context_per_s: float = 0.0  # what those tokens see, summed
    doubling_context: float = 0.0  # behind which one takes twice as long; 0 until that is known
    decode_tokens_per_s: float = 0.0  # all running requests together
    release_tokens_per_s: float = 0.0  # KV tokens that ending requests unpin
    steps_total: int = 0
    rows_total: int = 0  # requests in all steps together
    # Steps by their requests: up to each of BATCH_SIZES, and more. Together steps_total.
    batch_sizes: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BATCH_SIZES) + 1))
    prompt_tokens_total: int = 0
    cached_prompt_tokens_total: int = 0
    output_tokens_total: int = 0
    finished_requests_total: int = 0
    aborted_requests_total: int = 0
    retracted_requests_total: int = 0
    evicted_tokens_total: int = 0  # forgotten: neither on the device nor on the host any more
    hot_evicted_tokens_total: int = 0  # of these, asked for again soon; see `GhostList`
    # Of the pool of layers with a sliding window, where they have one of their own.
    window_capacity_tokens: int = 0
    window_pinned_tokens: int = 0  # seen by running requests
    window_cached_tokens: int = 0  # kept for whoever continues a cached prefix
    host_capacity_tokens: int = 0
    host_tokens: int = 0  # on the host, whether the device has them too or not
    host_stored_tokens_total: int = 0  # copied to the host
    host_loaded_tokens_total: int = 0  # copied back


Event = Outputs | Embedded | Rejected | CacheFlushed | Ready | Working | Stats
