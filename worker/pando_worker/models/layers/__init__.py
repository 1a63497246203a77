"""The layers that families are composed of.

Read in this order:
    causal_lm.py       the parts that all decoders share
    block.py           one layer: attention, then feed-forward
    attention.py       projections, rotary positions, the call to the backend
    latent_attention.py  the same with one latent for the keys and values of all heads
    seq2seq.py         the parts that encoder-decoders share
    source_attention.py  their attention: in the encoder, in the decoder, and between both
    text_encoder.py    the parts that text encoders share
    distance_bias.py   biases of scores by distance, instead of positions
    mlp.py             feed-forward
    experts.py         mixture of experts
    grouped_experts.py   experts chosen by groups, beside shared ones
    expert_tensors.py  the forms of experts in checkpoints
    linear.py          linear layers, split over the ranks
    vocabulary.py      embedding and output head
    lora_vocabulary.py  what adapters make of them
    weight.py          the weights of both, floating-point or integers
    norm.py            normalisation by root mean square
    layer_norm.py      and by mean and variance
    heads_norm.py      normalisation over all heads together
    rotary.py          rotary positions
    sinks.py           attention sinks

docs/adding-a-model.md explains how to combine them. Imports `attention`.
"""
