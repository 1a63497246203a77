"""Log-probabilities of tokens under the model's own distribution: before bias, penalties,
temperature and masks. Computed only if a request asks for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.batch import Logprobs, ProbedTokens, PromptScores
from pando_worker.runner.sampling.ops import BY_TORCH, SamplingOps
from pando_worker.tensors.transfer import HostCopy, to_device

# Prompt logits in memory at a time: for 32k tokens and a vocabulary of 128k, all take 16 GiB. The
# same for the logits of sampled tokens, which are there but of which the sums make copies.
SCORE_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DeviceLogprobs:
    """`Logprobs` on the device."""

    chosen: Tensor  # float32 [n]
    top_ids: Tensor  # int32 [n, top]
    top: Tensor  # float32 [n, top]


class ArrivingLogprobs:
    """`Logprobs` being copied to the host."""

    def __init__(self, found: DeviceLogprobs) -> None:
        self._copies = [HostCopy(tensor) for tensor in (found.chosen, found.top_ids, found.top)]

    def wait(self) -> Logprobs:
        chosen, top_ids, top = (copy.wait() for copy in self._copies)
        return Logprobs(chosen=chosen, top_ids=top_ids, top=top)


@torch.inference_mode()
def token_logprobs(
    logits: Tensor, tokens: Tensor, top: int, ops: SamplingOps = BY_TORCH
) -> DeviceLogprobs:
    """Log-probabilities of `tokens`, [n], and of the `top` most likely tokens.

    Args:
        logits: float32 [n, vocab_size]
        tokens: int64 [n]; the log-probability for -1 is meaningless
        ops: the device's own
    """
    size = max(1, SCORE_BYTES // (logits.shape[1] * logits.itemsize))
    if len(logits) > size:
        parts = [slice(start, start + size) for start in range(0, len(logits), size)]
        return _joined([token_logprobs(logits[p], tokens[p], top, ops) for p in parts])
    total = (ops.totals or _totals)(logits)[:, None]
    best = logits.topk(min(top, logits.shape[1]), dim=-1)
    chosen = logits.gather(1, tokens.clamp(min=0)[:, None]) - total
    return DeviceLogprobs(chosen[:, 0], best.indices.int(), best.values - total)


def _totals(logits: Tensor) -> Tensor:
    return logits.logsumexp(dim=-1)


@torch.inference_mode()
def prompt_logprobs(
    head: Callable[[NDArray[np.int64]], Tensor],
    scores: PromptScores,
    vocab_size: int,
    device: torch.device,
) -> DeviceLogprobs | None:
    """Log-probabilities of prompt tokens, computed in blocks to bound the memory of logits. None on
    ranks that have no logits.

    Args:
        head: logits after some tokens of the step, float32 [n, vocab_size], on other ranks than the
            first [n, 0]
    """
    size = max(1, SCORE_BYTES // (4 * vocab_size))
    targets = to_device(scores.targets, device)
    parts = []
    for start in range(0, len(scores.after), size):
        block = slice(start, start + size)
        logits = head(scores.after[block])
        if logits.shape[1]:
            parts.append(token_logprobs(logits, targets[block], scores.top_logprobs))
    return _joined(parts) if parts else None


@torch.inference_mode()
def probed_logprobs(
    head: Callable[[NDArray[np.int64]], Tensor], probed: ProbedTokens, device: torch.device
) -> Tensor | None:
    """Log-probabilities of tokens as what follows some, float32 [num_probed]. None on ranks that
    have no logits.

    Args:
        head: as of `prompt_logprobs`
    """
    logits = head(probed.after)
    if not logits.shape[1]:
        return None
    logprobs = logits.log_softmax(dim=-1)
    return logprobs[to_device(probed.which, device), to_device(probed.targets, device)]


def _joined(parts: Sequence[DeviceLogprobs]) -> DeviceLogprobs:
    return DeviceLogprobs(
        torch.cat([part.chosen for part in parts]),
        torch.cat([part.top_ids for part in parts]),
        torch.cat([part.top for part in parts]),
    )
