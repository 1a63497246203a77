"""Turns a step's logits into tokens.

Read in this order:
    step.py           turns logits into a step's result
    edits.py          biases, penalties, masks
    ops.py            what a device computes on logits with code of its own
    sampler.py        draws tokens
    logprobs.py       log-probabilities
    choices.py        what the model chooses behind tokens of an output that is verified
    histories.py      earlier tokens of rows with penalties, kept on the device
    future_tokens.py  the last token of every running request
    pooling.py        hidden states for embeddings

Imports batch and tensors.
"""
