"""What the model chooses behind tokens of an output that is verified."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.batch import Choices, ChosenTokens, SamplingBatch, SpeechRows
from pando_worker.runner.sampling.edits import apply_mask, prefer_timestamps
from pando_worker.runner.sampling.logprobs import SCORE_BYTES, token_logprobs
from pando_worker.runner.sampling.ops import SamplingOps
from pando_worker.runner.sampling.sampler import sample
from pando_worker.tensors.transfer import HostCopy


class ArrivingChoices:
    """`Choices` being copied to the host."""

    def __init__(self, tokens: Tensor, logprobs: Tensor) -> None:
        self._copies = HostCopy(tokens), HostCopy(logprobs)

    def wait(self) -> Choices:
        tokens, logprobs = (copy.wait() for copy in self._copies)
        return Choices(tokens=tokens, logprobs=logprobs)


@torch.inference_mode()
def choose(
    head: Callable[[NDArray[np.int64]], Tensor],
    chosen: ChosenTokens,
    vocab_size: int,
    ops: SamplingOps,
) -> ArrivingChoices | None:
    """As sampling chooses at temperature 0; in blocks, which bounds the memory of logits. None on
    ranks that have no logits.

    Args:
        head: as of `prompt_logprobs`
    """
    size = max(1, SCORE_BYTES // (4 * vocab_size))
    tokens, logprobs = [], []
    for start in range(0, len(chosen.after), size):
        block = slice(start, start + size)
        logits, firsts = head(chosen.after[block]), chosen.first_timestamps[block]
        if not logits.shape[1]:
            continue
        (ops.forbid or apply_mask)(logits, chosen.mask[block])
        prefer_timestamps(logits, SpeechRows(np.arange(len(firsts)), firsts))
        found = sample(logits, _greedy(len(firsts)), ops)
        tokens.append(found)
        logprobs.append(token_logprobs(logits, found, 0, ops).chosen)
    if not tokens:
        return None
    return ArrivingChoices(torch.cat(tokens), torch.cat(logprobs))


def _greedy(rows: int) -> SamplingBatch:
    zeros, numbers = np.zeros(rows, np.int64), np.zeros(rows, np.float32)
    return SamplingBatch(
        temperature=numbers,
        top_k=zeros,
        top_p=np.ones(rows, np.float32),
        min_p=numbers,
        seed=zeros,
        step=zeros,
    )
