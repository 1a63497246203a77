"""The layers that families are composed of.

Read in this order:
    causal_lm.py        the parts that all decoders share
    block.py            one layer: attention, then feed-forward
    attention/          projections, positions, the call to the backend
    mlp.py              feed-forward
    experts/            mixtures of experts
    norms/              normalisation
    seq2seq.py          the parts that encoder-decoders share
    text_encoder.py     the parts that text encoders share
    linear.py           linear layers, split over the ranks
    vocabulary.py       embedding and output head
    lora_vocabulary.py  what adapters make of them
    weight.py           the weights of both, floating-point or integers

docs/adding-a-model.md explains how to combine them. Imports `attention`.
"""
