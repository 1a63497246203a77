"""From a step's logits to tokens.

Read in this order:
    step.py           from logits to a step's result
    edits.py          biases, penalties, masks
    sampler.py        draws tokens
    logprobs.py       log-probabilities
    histories.py      what penalised rows have had so far, kept on the device
    future_tokens.py  the last token of every running request
    pooling.py        hidden states for embeddings

Imports batch and tensors.
"""
