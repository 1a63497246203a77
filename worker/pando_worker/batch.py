"""The interface between scheduler and model: one step as plain arrays.

The scheduler fills a `ForwardBatch` from its pools; a model runner turns it into tensors, runs the
model and samples the next tokens. There is one kind of batch: a row with `extend_lens == 1` and
cached tokens before it is a decode, any other row is a prefill (or a chunk of one), and a batch may
hold both.

A step has three calls: launch, sample, result. Between them the scheduler does other work, so the
next step is often planned before this one's tokens are known. A token that is not known yet is
written as `-1 - row`: the last token sampled for the request in that row of the ReqToTokenPool. The
runner keeps these tokens on the device, so that it need not wait for the scheduler.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pando_worker.adapters.info import AdapterInfo

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]
NO_TIMESTAMPS = np.iinfo(np.int64).max
"""The first time stamp of rows whose rules have none."""
T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True)
class LogitBias:
    """Numbers added to single logits: `logit_bias`, and -inf for tokens that are not allowed
    yet."""

    samples: Int64  # [n], which of the sampled rows
    tokens: Int64  # [n]
    values: Float32  # [n]


@dataclass(slots=True)
class Penalties:
    """Penalties of the sampled rows that have any, with what these rows have had since the last
    step in which they were here: a token, or all of prompt and output for a row that begins. The
    runner keeps the rest.

    Presence and frequency penalties count output tokens; the repetition penalty counts prompt and
    output, as in vLLM.
    """

    samples: Int64  # [n], which of the sampled rows
    presence: Float32  # [n]
    frequency: Float32  # [n]
    repetition: Float32  # [n]
    rows: Int64  # [n], rows of the ReqToTokenPool
    begins: NDArray[np.bool_]  # [n]
    tokens: Int64  # [m], the rows one after the other; -1 - row if not known yet
    token_row: Int64  # [m], the row that each token belongs to, as an index into `samples`
    is_output: NDArray[np.bool_]  # [m]


@dataclass(slots=True)
class SpeechRows:
    """Rows with Whisper's rules. Their log-probabilities are those after all edits."""

    samples: Int64  # [n], which of the sampled rows
    # [n], each row's first time stamp: if these together are likelier than any other token, one of
    # them follows. NO_TIMESTAMPS for rows without.
    first_timestamps: Int64


@dataclass(slots=True)
class SamplingBatch:
    """Sampling parameters of the rows that yield a token, each array of shape [num_samples]."""

    temperature: Float32  # 0 is greedy
    top_k: Int64  # 0 keeps every token
    top_p: Float32
    min_p: Float32
    seed: Int64
    step: Int64  # output tokens of the request so far: (seed, step) fixes the draw
    bias: LogitBias | None = None
    penalties: Penalties | None = None
    speech: SpeechRows | None = None
    # The most likely tokens that any row requests log-probabilities of; -1: no row requests any
    top_logprobs: int = -1


@dataclass(slots=True)
class PromptScores:
    """Prompt tokens whose log-probabilities are requested, given all tokens before them."""

    after: Int64  # [num_scores], the token before each, as its index in `input_ids`
    targets: Int64  # [num_scores], the tokens themselves
    top_logprobs: int  # most likely tokens to report for each


@dataclass(slots=True)
class ProbedTokens:
    """Tokens whose log-probabilities are requested as what follows some of the step's."""

    after: Int64  # [n], the tokens before them, as indices in `input_ids`
    which: Int64  # [num_probed], an index into `after` for each
    targets: Int64  # [num_probed]


@dataclass(slots=True)
class AlignedRows:
    """Rows whose tokens are aligned with their sources."""

    rows: Int64  # [n], indices into the batch's rows
    first: Int64  # [n], of their aligned tokens, as indices in `input_ids`
    last: Int64  # [n], behind these
    positions: Int64  # [n], of their sources, that are not padding


@dataclass(slots=True)
class ChosenTokens:
    """Tokens of the step behind which the likeliest token by a speech model's rules is
    requested."""

    after: Int64  # [n], as indices in `input_ids`
    mask: Int32  # [n, ceil(vocab_size / 32)], as of `Step.sample`
    first_timestamps: Int64  # [n], as of `SpeechRows`


@dataclass(slots=True)
class PooledRows:
    """Rows to embed: they yield a part of their final hidden states instead of a token, the sum
    over some of their new tokens or each number's largest."""

    rows: Int64  # [num_pooled], indices into the batch's rows
    first: Int64  # [num_pooled], of these tokens, as an index in `input_ids`
    last: Int64  # [num_pooled], behind these
    is_max: NDArray[np.bool_]  # [num_pooled]
    # What each of these tokens counts in the sum, one row after the other; None: all count 1.
    weights: Float32 | None = None


@dataclass(frozen=True, slots=True)
class PixelValues:
    """An image that the vision tower encodes into embeddings, one for each of its tokens."""

    digest: bytes
    tokens: int
    arrays: Arrays  # of this image, by the names of the tower's arguments


@dataclass(frozen=True, slots=True)
class EmbeddingRows:
    """Some of an image's embeddings, those of its tokens from `first` to before `end`."""

    digest: bytes
    first: int
    end: int


@dataclass(slots=True)
class ImageTokens:
    """The tokens of a step that stand for images. Their embeddings come from the vision tower,
    which runs before the model; the runner keeps them until the scheduler drops them."""

    drop: list[bytes]  # digests of embeddings to forget, before `encode`
    encode: list[PixelValues]
    tokens: Int64  # [n], indices into `input_ids`
    rows: list[EmbeddingRows]  # of these tokens, in their order
    # [num_tokens], how many tokens of its row each token of the batch sees, in models in which an
    # image's tokens see each other, later ones too; ascending in each row. None: those up to itself
    seen: Int32 | None = None


@dataclass(frozen=True, slots=True)
class SourceArray:
    """What an encoder reads: log-mel features, float32 [mel bins, frames], or token ids, int32
    [length]."""

    digest: bytes
    array: NDArray[Any]


@dataclass(slots=True)
class SourceRows:
    """What the rows of a step of an encoder-decoder attend to beside their own tokens."""

    encode: list[SourceArray]  # which the encoder reads before the decoder runs
    # [num_positions], the KV slots of their positions, one source after the other
    slots: Int64
    lengths: Int32  # [batch], positions of each row's source
    page_table: Int32  # [batch, max_pages], as of `ForwardBatch`

    @property
    def num_positions(self) -> int:
        """That the step encodes."""
        return len(self.slots)


@dataclass(slots=True)
class AdapterRows:
    """The adapters that a step's rows run with."""

    slots: Int32  # [batch], each row's slot of device memory; -1: the base model


@dataclass(slots=True)
class PageCopies:
    """Pages to copy between the device's KV pool and the host's."""

    device: Int32  # [n]
    host: Int32  # [n]


@dataclass(slots=True)
class PageChanges:
    """The pages that rows of the ReqToTokenPool have got since the last step, for a runner that
    keeps page tables of its own."""

    rows: Int32  # [n], of the ReqToTokenPool
    columns: Int32  # [n], where in these rows
    pages: Int32  # [n]
    window_pages: Int32 | None  # [n], in the numbers of `ForwardBatch.window_table`


@dataclass(slots=True)
class ForwardBatch:
    """One step over `batch` requests with `num_tokens` new tokens in total.

    Its arrays must not change until the step's result has been read.
    """

    input_ids: Int64  # [num_tokens], the rows one after the other; -1 - row if not known yet
    # Rotary positions: [num_tokens], or [3, num_tokens] for time, height and width where a model
    # gives images such positions and the step runs tokens of one.
    positions: Int64
    out_slots: Int64  # [num_tokens], the KV slot that each token's key and value are written to
    extend_lens: Int32  # [batch], new tokens of each row
    seq_lens: Int32  # [batch], tokens in the KV cache after this step
    page_table: Int32  # [batch, max_pages], each row's pages in order, padded with any valid pages
    page_size: int  # slot = page * page_size + offset
    req_rows: Int64  # [batch], rows of the ReqToTokenPool, by which the runner keeps the next token
    sample_rows: Int64  # [num_samples], rows that yield a token: all but unfinished chunks
    sampling: SamplingBatch
    scores: PromptScores | None = None
    probed: ProbedTokens | None = None
    pooled: PooledRows | None = None
    aligned: AlignedRows | None = None
    chosen: ChosenTokens | None = None
    images: ImageTokens | None = None
    adapters: AdapterRows | None = None  # None: all rows run the base model
    sources: SourceRows | None = None  # of an encoder-decoder
    # [num_tokens], 1 for tokens of the second text of a pair; None: all are 0. For text encoders.
    kinds: Int64 | None = None
    # Both run before the model, the stores first: a load may overwrite a page that is stored.
    stores: PageCopies | None = None
    loads: PageCopies | None = None
    # `page_table` and `out_slots` in the numbers of the pool that layers with a sliding window have
    # for themselves; -1 for pages behind the window, which are released. None if all share one
    # pool.
    window_table: Int32 | None = None
    window_slots: Int64 | None = None
    # None: the runner keeps no page tables (`Pools.keeps_tables`), or the rows have none there.
    page_changes: PageChanges | None = None
    # Like `stores` and `loads`, for window pages.
    window_stores: PageCopies | None = None
    window_loads: PageCopies | None = None

    @property
    def seen(self) -> Int32 | None:
        """`ImageTokens.seen`; None for causal attention."""
        return None if self.images is None else self.images.seen

    @property
    def has_loads(self) -> bool:
        return self.loads is not None or self.window_loads is not None


@dataclass(slots=True)
class Logprobs:
    """Log-probabilities of n tokens in the model's own distribution, before temperature, penalties
    and masks."""

    chosen: Float32  # [n]
    top_ids: Int32  # [n, top], most likely first
    top: Float32  # [n, top]


@dataclass(slots=True)
class Choices:
    """What a model chooses, at temperature 0, behind n tokens."""

    tokens: Int64  # [n]; -1 as of `StepResult.tokens`
    logprobs: Float32  # [n], after the rules


@dataclass(slots=True)
class StepResult:
    # [num_samples], in the order of `sample_rows`; -1 if the logits are not finite, or if mask and
    # biases forbid every token.
    tokens: Int64
    logprobs: Logprobs | None = None  # of `tokens`, if any row requested them
    scores: Logprobs | None = None  # of `PromptScores.targets`
    probed: Float32 | None = None  # [num_probed], log-probabilities of `ProbedTokens.targets`
    # [num_pooled, hidden_size], in the order of `PooledRows`; of a model that classifies,
    # [num_pooled, labels]
    pooled: Float32 | None = None
    # Of `AlignedRows`, [alignment heads, tokens, positions] each
    aligned: Sequence[Float32] = ()
    choices: Choices | None = None  # behind `ChosenTokens.after`
    # Digests of images of this step that the vision tower could not encode: the rows that run their
    # tokens mean nothing.
    failed_images: frozenset[bytes] = frozenset()


class Step(Protocol):
    """A batch in flight."""

    def sample(self, mask: Int32 | None) -> None:
        """Start sampling tokens; called once per step, before the next launch.

        Args:
            mask: [num_samples, ceil(vocab_size / 32)]; token t of a row is allowed where bit
                t % 32 of word t // 32 is set. None allows all. The caller may change it afterwards.
        """
        ...

    def result(self) -> StepResult:
        """Wait for the step's end; called after `sample`. Raises any error of the model."""
        ...


class BackgroundJob(Protocol[T_co]):
    """Work in the background."""

    def done(self) -> bool: ...

    def result(self) -> T_co:
        """Waits for the end. Raises what the work raised."""
        ...


class Adapters(Protocol):
    """Reads adapters and puts them into slots of device memory, without delaying steps.

    `Pools` has the numbers of slots and pages. A slot holds one adapter; the scheduler chooses its
    pages. Calls return at once and their work is done in the order of the calls.
    """

    def check(self, path: str) -> BackgroundJob[AdapterInfo]:
        """Read an adapter, check it against the model and keep it in host memory, where the one
        unused for longest is dropped if there is no room.

        Args:
            path: a directory in PEFT's format, or a hub repository

        The job raises AdapterError if the adapter cannot be used.
        """
        ...

    def load(self, slot: int, pages: Sequence[int], info: AdapterInfo) -> BackgroundJob[None]:
        """Copy an adapter into `info.pages` pages, and let `slot` refer to them.

        The slot, and the pages, are not used by a launched step or by another slot. The job raises
        AdapterError if host memory no longer has the adapter and `info.path` does not either.
        """
        ...

    def forget(self, identity: bytes) -> None:
        """Drop an adapter from host memory."""
        ...

    @property
    def in_host_memory(self) -> Collection[bytes]:
        """The identities of the adapters there."""
        ...


class ModelRunner(Protocol):
    """Runs batches in order. The real one owns the weights and the KV pool."""

    def launch(self, batch: ForwardBatch) -> Step:
        """Start the model; may return before it has finished."""
        ...
