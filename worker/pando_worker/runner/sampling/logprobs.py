"""Log-probabilities of tokens under the model's own distribution: before bias, penalties,
temperature and masks. Computed only where a request asks for them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pando_worker.batch import Logprobs, PromptScores
from pando_worker.tensors.transfer import HostCopy, to_device

# Logits of a prompt that exist at once. 32k tokens of a vocabulary of 128k would take 16 GiB.
SCORE_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class DeviceLogprobs:
    """`Logprobs` before they come to the host."""

    chosen: Tensor  # float32 [n]
    top_ids: Tensor  # int32 [n, top]
    top: Tensor  # float32 [n, top]


class ArrivingLogprobs:
    """`Logprobs` on their way to the host."""

    def __init__(self, found: DeviceLogprobs) -> None:
        self._copies = [HostCopy(tensor) for tensor in (found.chosen, found.top_ids, found.top)]

    def wait(self) -> Logprobs:
        chosen, top_ids, top = (copy.wait() for copy in self._copies)
        return Logprobs(chosen=chosen, top_ids=top_ids, top=top)


@torch.inference_mode()
def token_logprobs(logits: Tensor, tokens: Tensor, top: int) -> DeviceLogprobs:
    """Of `tokens`, [n], and of the `top` most likely ones.

    Args:
        logits: float32 [n, vocab_size]
        tokens: int64 [n]; where one is -1 its log-probability means nothing
    """
    total = logits.logsumexp(dim=-1, keepdim=True)
    best = logits.topk(min(top, logits.shape[1]), dim=-1)
    chosen = logits.gather(1, tokens.clamp(min=0)[:, None]) - total
    return DeviceLogprobs(chosen[:, 0], best.indices.int(), best.values - total)


@torch.inference_mode()
def prompt_logprobs(
    head: Callable[[Tensor], Tensor], hidden: Tensor, scores: PromptScores, vocab_size: int
) -> DeviceLogprobs:
    """Of prompt tokens, in blocks, so that all their logits never exist at once.

    Args:
        head: logits, float32 [n, vocab_size], of hidden states [n, hidden_size]
        hidden: [num_tokens, hidden_size]
    """
    device = hidden.device
    size = max(1, SCORE_BYTES // (4 * vocab_size))
    after, targets = to_device(scores.after, device), to_device(scores.targets, device)
    parts = []
    for start in range(0, len(after), size):
        block = slice(start, start + size)
        logits = head(hidden[after[block]])
        parts.append(token_logprobs(logits, targets[block], scores.top_logprobs))
    return DeviceLogprobs(
        torch.cat([part.chosen for part in parts]),
        torch.cat([part.top_ids for part in parts]),
        torch.cat([part.top for part in parts]),
    )
