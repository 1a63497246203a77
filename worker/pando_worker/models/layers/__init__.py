"""The layers that families are composed of.

Read in this order:
    causal_lm.py       the parts that all decoders share
    block.py           one layer: attention, then feed-forward
    attention.py       projections, rotary positions, the call to the backend
    mlp.py             feed-forward
    experts.py         mixture of experts
    expert_tensors.py  the forms of experts in checkpoints
    linear.py          linear layers, split over the ranks
    vocabulary.py      embedding and output head
    weight.py          the weights of both, floating-point or integers
    norm.py            normalisation
    heads_norm.py      normalisation over all heads together
    rotary.py          rotary positions
    sinks.py           attention sinks

docs/adding-a-model.md explains how to combine them. Imports `attention`.
"""
