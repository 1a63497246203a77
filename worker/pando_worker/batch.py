"""The border between scheduler and model: one step as plain arrays.

The scheduler fills a `ForwardBatch` from its pools; a model runner turns it into tensors, runs the
model and draws the next tokens. There is one kind of batch: a row with `extend_lens == 1` that has
cached tokens before it is a decode, any other row a prefill (or a chunk of one), and a batch may
hold both.

A step is launched, told to sample, and its result awaited. Between the three the scheduler does
other work, so the next step is often planned before this one's tokens are known. A token that is
not known yet is written as `-1 - row`: the one that the request in that row of the ReqToTokenPool
yielded last. The runner keeps these on the device, so that it need not wait for the scheduler.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


@dataclass(slots=True)
class LogitBias:
    """Numbers added to single logits: `logit_bias`, and -inf where a token is not allowed yet."""

    samples: Int64  # [n], which of the sampled rows
    tokens: Int64  # [n]
    values: Float32  # [n]


@dataclass(slots=True)
class Penalties:
    """For the sampled rows that have any; a row's earlier tokens are listed one after the other.

    Presence and frequency count output tokens, repetition prompt and output, as in vLLM.
    """

    samples: Int64  # [n], which of the sampled rows
    presence: Float32  # [n]
    frequency: Float32  # [n]
    repetition: Float32  # [n]
    tokens: Int64  # [m], as in `input_ids` below -1 - row where not known yet
    token_row: Int64  # [m], whose token it is: index into `samples`
    is_output: NDArray[np.bool_]  # [m]


@dataclass(slots=True)
class SamplingBatch:
    """Sampling parameters of the rows that yield a token, each array of shape [num_samples]."""

    temperature: Float32  # 0 is greedy
    top_k: Int64  # 0 keeps every token
    top_p: Float32
    min_p: Float32
    seed: Int64
    step: Int64  # how many tokens the request has produced: (seed, step) fixes the draw
    bias: LogitBias | None = None
    penalties: Penalties | None = None
    # Tokens whose log-probability the most demanding row wants beside its own; -1: no row wants any
    top_logprobs: int = -1


@dataclass(slots=True)
class PromptScores:
    """Prompt tokens whose log-probabilities are asked for, given all tokens before them."""

    after: Int64  # [num_scores], the token before each, as its index in `input_ids`
    targets: Int64  # [num_scores], the tokens themselves
    top_logprobs: int  # most likely tokens to report beside each


@dataclass(slots=True)
class PooledRows:
    """Rows that are embedded: their final hidden states are wanted instead of a token."""

    rows: Int64  # [num_pooled], indices into the batch's rows
    is_mean: NDArray[np.bool_]  # the sum over the row's new tokens; otherwise its last token's


@dataclass(slots=True)
class PageCopies:
    """Pages to copy between the device's KV pool and the host's."""

    device: Int32  # [n]
    host: Int32  # [n]


@dataclass(slots=True)
class ForwardBatch:
    """One step over `batch` requests with `num_tokens` new tokens altogether.

    Its arrays must stay as they are until the step's result is there.
    """

    input_ids: Int64  # [num_tokens], the rows one after the other; -1 - row: not known yet
    positions: Int64  # [num_tokens]
    out_slots: Int64  # [num_tokens], the KV slot that each token's key and value go to
    extend_lens: Int32  # [batch], new tokens of each row
    seq_lens: Int32  # [batch], tokens in the KV cache once this step has run
    page_table: Int32  # [batch, max_pages], each row's pages in order, then any valid ones
    page_size: int  # slot = page * page_size + offset
    req_rows: Int64  # [batch], rows of the ReqToTokenPool: where the runner keeps the next token
    sample_rows: Int64  # [num_samples], rows that yield a token: all but unfinished chunks
    sampling: SamplingBatch
    scores: PromptScores | None = None
    pooled: PooledRows | None = None
    # Done before the model runs, first the stores: a page to be stored may be loaded over.
    stores: PageCopies | None = None
    loads: PageCopies | None = None
    # Where layers that see only a window have a pool of their own, `page_table` and `out_slots` in
    # its numbers; -1 for pages behind the window, which are released. None where all share one.
    window_table: Int32 | None = None
    window_slots: Int64 | None = None
    # Like `stores` and `loads`, of window pages.
    window_stores: PageCopies | None = None
    window_loads: PageCopies | None = None


@dataclass(slots=True)
class Logprobs:
    """Of n tokens, under the model's own distribution: before temperature, penalties and masks."""

    chosen: Float32  # [n]
    top_ids: Int32  # [n, top], most likely first
    top: Float32  # [n, top]


@dataclass(slots=True)
class StepResult:
    # [num_samples], in the order of `sample_rows`; -1 where the logits are not finite or the mask
    # and the biases forbid every token.
    tokens: Int64
    logprobs: Logprobs | None = None  # of `tokens`, where any row asked
    scores: Logprobs | None = None  # of `PromptScores.targets`
    pooled: Float32 | None = None  # [num_pooled, hidden_size], in the order of `PooledRows`


class Step(Protocol):
    """A batch on its way."""

    def sample(self, mask: Int32 | None) -> None:
        """Start drawing tokens; once a step, and before the next launch.

        Args:
            mask: [num_samples, ceil(vocab_size / 32)]; token t of a row is allowed where bit
                t % 32 of word t // 32 is set. None allows all. The caller may change it afterwards.
        """
        ...

    def result(self) -> StepResult:
        """Wait for the step's end; after `sample`. Raises what failed in the model."""
        ...


class ModelRunner(Protocol):
    """Runs batches, one after the other. The real one owns the weights and the KV pool."""

    def launch(self, batch: ForwardBatch) -> Step:
        """Start the model; may return before it has run."""
        ...
