"""The layers of which families are composed.

Read in this order:
    causal_lm.py       what all decoders have in common
    block.py           one layer: attention, then feed-forward
    attention.py       projections, rotary positions, the call of the backend
    mlp.py             feed-forward
    experts.py         mixture of experts
    expert_tensors.py  how checkpoints have them
    linear.py          linear layers, split over the ranks
    vocabulary.py      embedding and output head
    weight.py          their weights, floating-point or integers
    norm.py            normalisation
    heads_norm.py      over all heads together
    rotary.py          rotary positions
    sinks.py           attention sinks

docs/adding-a-model.md says how they are put together. Imports `attention`.
"""
