"""What requests change in their logits before a token is drawn: biases, penalties, masks.

In vLLM's order: bias first, then repetition, frequency and presence, then the mask. Biases and
penalties work on the tokens listed, not on the whole vocabulary; the mask, one bit a token, is
spread by a table of bytes.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.batch import Int32, LogitBias, Penalties
from pando_worker.runner.sampling.histories import History
from pando_worker.tensors.transfer import to_device

_ROWS_AT_ONCE = 32  # bounds the copies that penalties make


def add_bias(logits: Tensor, bias: LogitBias) -> None:
    """Add the values to their logits, in place, [rows, vocab_size]; they add up where one token is
    named twice."""
    device = logits.device
    where = (to_device(bias.samples, device), to_device(bias.tokens, device))
    logits.index_put_(where, to_device(bias.values, device), accumulate=True)


def penalize(logits: Tensor, penalties: Penalties, history: History) -> None:
    """Lower the logits of tokens that a row has had, in place.

    Repetition divides a positive logit and multiplies a negative one, once whatever the count, for
    tokens of prompt and output (CTRL, arXiv:1909.05858); frequency takes its value from the logit
    for each time that a token was put out, presence once.

    Args:
        logits: float32 [rows, vocab_size]
        history: of the penalised rows
    """
    device, vocab_size = logits.device, logits.shape[1]
    for start in range(0, len(penalties.samples), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        samples = to_device(penalties.samples[part], device)
        tokens, output = history.part(part)
        # A column more, which takes what is done to the padding.
        block = functional.pad(logits.index_select(0, samples), (0, 1))
        if (penalties.repetition[part] != 1).any():
            factor = to_device(penalties.repetition[part], device)[:, None]
            had = block.gather(1, tokens)
            # A token that is listed twice is written twice, with the same value.
            block.scatter_(1, tokens, torch.where(had > 0, had / factor, had * factor))
        if penalties.presence[part].any():
            presence = to_device(penalties.presence[part], device)[:, None]
            block.scatter_(1, output, block.gather(1, output) - presence)
        if penalties.frequency[part].any():
            frequency = to_device(penalties.frequency[part], device)[:, None]
            block.scatter_add_(1, output, -frequency.expand(output.shape))
        logits.index_copy_(0, samples, block[:, :vocab_size])


def apply_mask(logits: Tensor, mask: Int32) -> None:
    """Forbid tokens, in place: -inf is added to them, so that NaN remains to be seen.

    Args:
        logits: float32 [rows, vocab_size]
        mask: [rows, ceil(vocab_size / 32)]; token t is allowed where bit t % 32 of word t // 32 is
            set, as llguidance and xgrammar have it
    """
    assert mask.shape == (len(logits), -(-logits.shape[1] // 32)), (mask.shape, logits.shape)
    bits = torch.arange(8, device=logits.device)
    allowed = (torch.arange(256, device=logits.device)[:, None] >> bits) & 1
    table = torch.zeros(256, 8, device=logits.device).masked_fill_(allowed == 0, -torch.inf)
    octets = to_device(mask, logits.device).view(torch.uint8).int()  # lowest first: little-endian
    logits += functional.embedding(octets, table).flatten(1)[:, : logits.shape[1]]
