"""The messages between the worker's HTTP process and its scheduler process.

The HTTP process (tokenizer, detokenizer) sends `Command`s to the scheduler process; the scheduler
answers with `Event`s. Both travel as msgspec MessagePack over ZeroMQ PUSH/PULL pairs; one ZeroMQ
message is one struct, and behind it the bytes of its arrays (`wire.py`). Text is never sent: the
detokenizer handles stop strings, and end-of-sequence tokens are sent as plain `stop_token_ids`.
"""

from enum import StrEnum

import msgspec

from pando_worker.progress import Stage
from pando_worker.stats import Stats

EXIT_WITH_REASON = 4
"""Exit code of a scheduler process that has logged why the model cannot be served."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sampling parameters of one request; validated by the HTTP process."""

    max_new_tokens: int
    temperature: float = 1.0  # 0 is greedy
    top_k: int = 0  # 0 keeps every token
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0  # 64 bits; the HTTP process draws one if the client sends none
    stop_token_ids: tuple[int, ...] = ()  # include the model's EOS ids, unless they are ignored
    min_new_tokens: int = 0  # no stop token is allowed before
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}


class LogprobsWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Log-probabilities to report, in the model's own distribution before sampling parameters."""

    top: int = 0  # most likely tokens to report beside the sampled one
    # Also of the prompt, from this position on (position 0 has none).
    prompt_start: int | None = None


class Raw:
    """Bytes that are not copied."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: memoryview) -> None:
        """
        Args:
            buffer: contiguous, of bytes
        """
        self.buffer = buffer


class SentArray(msgspec.Struct, frozen=True, array_like=True):
    """An array of numpy."""

    dtype: str  # numpy's name for it, with the order of bytes: "<f4"
    shape: tuple[int, ...]
    data: Raw


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the encoder of an encoder-decoder reads for a request: the decoder attends to all of it
    with each token."""

    digest: bytes  # 16 bytes, of its array: equal inputs have equal ones, and are encoded once
    length: int  # positions that the encoder makes of it, each a key and a value of every layer
    # Log-mel features of audio, "<f4" [mel bins, frames], with two frames for each position; or
    # the ids of a text, "<i4" [length].
    array: SentArray


class SpeechRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens Whisper may produce, as OpenAI's decoder and transformers' logits processors
    have it. Log-probabilities of a request with rules are those after them, before temperature.

    With time stamps: they come in pairs, but for the last before the end; they never fall, and
    each second one of a pair is equal to the next first one or later; and one must follow if all
    of them together are more likely than the likeliest text token.
    """

    end_token: int  # <|endoftext|>; all text is below it
    suppressed: tuple[int, ...] = ()  # never allowed
    suppressed_first: tuple[int, ...] = ()  # not allowed as the first token
    first_timestamp: int | None = None  # <|0.00|>; all from it on are time stamps. None: no rules
    # The latest time stamp at the beginning: this many steps behind the first one. None: any.
    max_initial: int | None = None


class Probe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks how likely some tokens are behind one of the prompt's, whatever follows it there."""

    position: int  # of the prompt's token, from 0
    token_ids: tuple[int, ...]


class PromptImage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An image of a prompt, as the model's processor made it; or a frame of a video, which a vision
    tower sees alone: two pictures of it, for the models that are served."""

    digest: bytes  # of its arrays and its time: equal images have equal ones
    # Its first token in the prompt. There, and wherever it comes again within `length`, `input_ids`
    # has the model's image token, which stands for an embedding; between these are marks, such as
    # the ends of rows.
    start: int
    length: int
    arrays: dict[str, SentArray]  # by the names of the vision tower's arguments
    # Frames, rows and columns of its tokens, for a model that gives them positions in these three
    # dimensions; their product is `length`.
    grid: tuple[int, int, int] | None = None
    time: int = 0  # added to its positions of time
    # Whether the next image has its positions, but for the time: it is the video's next frame.
    is_continued: bool = False

    @property
    def num_bytes(self) -> int:
        return sum(array.data.buffer.nbytes for array in self.arrays.values())


class FinishReason(StrEnum):
    # A stop token was sampled, and is the output's last token; or the grammar is complete.
    STOP = "stop"
    LENGTH = "length"  # max_new_tokens or the end of the context was reached
    ABORT = "abort"  # the HTTP process sent an Abort


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run one request. Answered by `Output`s, the last one with `finish`, or by one `Rejected`."""

    rid: str
    input_ids: list[int]
    # How many of the last of these are output: a resumed request continues after them.
    num_output: int = 0
    sampling: SamplingParams
    logprobs: LogprobsWanted | None = None
    grammar: str | None = None  # for the output, in llguidance's serialized form
    priority: int = 0  # smaller first, with the policy "priority"
    namespace: bytes = b""  # within which it shares cached prefixes; see memory/namespace.py
    adapter: bytes = b""  # the identity of its LoRA adapter, which is loaded; b"": the base
    deadline_s: float | None = None  # seconds from now, after which it ends with status 504
    images: tuple[PromptImage, ...] = ()  # in the order of the prompt
    # What an encoder-decoder reads; `input_ids` is the decoder's prompt then. No other model has
    # one, and an encoder-decoder runs nothing without.
    source: Source | None = None
    rules: SpeechRules | None = None  # for the output; not together with a grammar
    probe: Probe | None = None


class Pooling(StrEnum):
    """How final hidden states are pooled into one vector, as in sentence-transformers."""

    LAST = "last"  # the last token's
    CLS = "cls"  # the first token's
    MEAN = "mean"  # the mean over all tokens
    MAX = "max"  # each number's largest over all tokens
    SQRT = "mean_sqrt_len"  # the sum over all tokens, divided by the root of their number
    WEIGHTED = "weighted_mean"  # the mean, with the weights 1, 2, 3, ...


class Embed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Embed one prompt; or classify it, if the model has a head that does so with the pooled
    vector. Answered by one `Embedded` or `Rejected`, or if aborted by an `Output`."""

    rid: str
    input_ids: list[int]
    pooling: Pooling
    is_normalized: bool = True  # the vector has length 1
    # Of a pair of texts, for text encoders: the second one's first token. 0: it is no pair.
    second: int = 0
    priority: int = 0
    namespace: bytes = b""
    adapter: bytes = b""
    deadline_s: float | None = None
    images: tuple[PromptImage, ...] = ()  # in the order of the prompt


class Align(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Align an output with its source: what the alignment heads attend to while the decoder runs
    these tokens. Answered by one `Aligned` or `Rejected`, or if aborted by an `Output`."""

    rid: str
    input_ids: list[int]  # prompt and output
    first: int  # the index of the first one of the output
    source: Source
    positions: int  # of the source, from the first, that are not padding
    priority: int = 0
    namespace: bytes = b""
    deadline_s: float | None = None


class Verify(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask what the model chooses, at temperature 0 and by rules, behind the prompt and behind each
    token of an output: whether it is the answer, in one step instead of one for each token.
    Answered by one `Verified` or `Rejected`, or if aborted by an `Output`."""

    rid: str
    input_ids: list[int]  # prompt and output
    first: int  # the index of the first one of the output; len(input_ids) if it has none
    source: Source
    rules: SpeechRules
    probe: Probe
    priority: int = 0
    namespace: bytes = b""
    deadline_s: float | None = None


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Stop a request in any state. Unknown or finished ids are ignored; otherwise the
    scheduler answers with an `Output` whose finish is ABORT after the step in flight."""

    rid: str


class FlushCache(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Drop all cached prefixes. Answered by `CacheFlushed`."""

    call: int


class LoadAdapter(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Check the files of a LoRA adapter, which requests may name afterwards, until it has been
    unloaded as often as it was loaded. Answered by `AdapterLoaded` or `AdapterRefused`."""

    call: int
    path: str


class PinAdapter(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Keep a loaded adapter in device memory, or no longer. Answered by `AdapterDone`, once it is
    there, or by `AdapterRefused`."""

    call: int
    identity: bytes
    is_pinned: bool


class UnloadAdapter(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Take back one load of an adapter. With the last one it is forgotten, after the requests that
    are here. Answered by `AdapterDone`."""

    call: int
    identity: bytes


Command = (
    Generate
    | Embed
    | Align
    | Verify
    | Abort
    | FlushCache
    | LoadAdapter
    | PinAdapter
    | UnloadAdapter
)


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
    logprobs: list[TokenLogprob] = []  # of `token_ids`, if requested
    # Of the prompt's tokens from max(1, prompt_start) on; sent once, with the first output.
    prompt_logprobs: list[TokenLogprob] = []
    # Of the tokens of `Generate.probe`, in their order; sent once, with the first output.
    probed: list[float] = []
    # With the first output: whether its source was cached when it was first scheduled.
    is_source_cached: bool = False


class Outputs(msgspec.Struct, frozen=True, tag=True):
    """All outputs of one scheduler step."""

    outputs: list[Output]


class Embedded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    rid: str
    vector: bytes  # float32, little-endian, [hidden_size]; of a model that classifies, [labels]
    cached_tokens: int
    queue_s: float


class Aligned(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The weights of cross-attention over the source, the mean over the model's alignment heads,
    each first normalised over the output's tokens (mean 0, deviation 1) and smoothed by a median of
    seven positions, as in OpenAI's Whisper and in transformers: dynamic time warping finds the
    words in them."""

    rid: str
    weights: bytes  # float32, little-endian, [len(input_ids) - first, positions]
    cached_tokens: int
    queue_s: float


class Verified(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Which token the model chooses after the prompt, and after each token of the output."""

    rid: str
    choices: list[int]  # one more than the output has tokens
    logprobs: list[float]  # of the choices, after the rules
    probed: list[float]
    is_source_cached: bool  # when it was first scheduled
    cached_tokens: int
    queue_s: float


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request that ends with an error; it may have produced tokens before."""

    rid: str
    message: str
    # 400: it can never fit, or its grammar is invalid; 404: its adapter is not loaded; 502: its
    # adapter cannot be read any more; 503: the queue is full; 504: its deadline passed; 500: it
    # failed while running.
    status: int


class CacheFlushed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    done: bool  # False: requests were running or waiting


class AdapterLoaded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    identity: bytes  # 16 bytes, a hash of its weights
    rank: int  # the largest of its layers


class AdapterDone(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int


class AdapterRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    status: int  # 400: its files are broken or do not fit the model; 409: there is no room for it
    message: str


class AdapterPlaces(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Where adapters are, by identity; sent after changes. The others are on disk."""

    device: tuple[bytes, ...] = ()  # in a slot, or being loaded into one
    waiting: tuple[bytes, ...] = ()  # for a slot
    host: tuple[bytes, ...] = ()


class Loading(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sent until `Ready`: what the engine does now."""

    stage: Stage
    done: float  # share of the stage; 0: it has just begun, or it is unknown


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The model is loaded and the pools are sized."""

    capacity_tokens: int
    max_running_requests: int
    max_request_tokens: int  # prompt and output of one request in total
    page_size: int


class Working(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The scheduler is about to wait for the model, and may send nothing for `seconds`."""

    seconds: float


Event = (
    Outputs
    | Embedded
    | Aligned
    | Verified
    | Rejected
    | CacheFlushed
    | AdapterLoaded
    | AdapterDone
    | AdapterRefused
    | AdapterPlaces
    | Loading
    | Ready
    | Working
    | Stats
)
