"""What requests change in their logits before a token is drawn: biases, penalties, masks.

In vLLM's order: bias first, then repetition, frequency and presence, then the mask. All work on
lists of (row, token) pairs, so their cost is that of the tokens listed, not of the vocabulary; the
mask, one bit a token, is spread by a table of bytes.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.batch import Int32, LogitBias, Penalties
from pando_worker.tensors.transfer import to_device


def add_bias(logits: Tensor, bias: LogitBias) -> None:
    """Add the values to their logits, in place, [rows, vocab_size]; they add up where one token is
    named twice."""
    device = logits.device
    where = (to_device(bias.samples, device), to_device(bias.tokens, device))
    logits.index_put_(where, to_device(bias.values, device), accumulate=True)


def penalize(logits: Tensor, penalties: Penalties, tokens: Tensor) -> None:
    """Lower the logits of tokens that a row has had, in place.

    Repetition divides a positive logit and multiplies a negative one, once whatever the count, for
    tokens of prompt and output (CTRL, arXiv:1909.05858); frequency takes its value from the logit
    for each time that a token was put out, presence once.

    Args:
        logits: float32 [rows, vocab_size]
        tokens: int64 [m], `penalties.tokens` with those filled in that were not known
    """
    device = logits.device
    row = to_device(penalties.samples, device)[to_device(penalties.token_row, device)]
    if (penalties.repetition != 1).any():
        had = logits[row, tokens]
        factor = to_device(penalties.repetition[penalties.token_row], device)
        # A token that is listed twice is written twice, with the same value.
        logits[row, tokens] = torch.where(had > 0, had / factor, had * factor)
    put_out = to_device(penalties.is_output.nonzero()[0], device)
    row, tokens = row[put_out], tokens[put_out]
    if penalties.presence.any():
        presence = penalties.presence[penalties.token_row[penalties.is_output]]
        logits[row, tokens] = logits[row, tokens] - to_device(presence, device)
    if penalties.frequency.any():
        frequency = penalties.frequency[penalties.token_row[penalties.is_output]]
        logits.index_put_((row, tokens), -to_device(frequency, device), accumulate=True)


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
