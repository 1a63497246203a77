"""Attention in a model: projections, positions, and the call to the attention backend.

multi_head.py     heads with keys and values of their own, or shared by groups of them
latent.py         one latent for the keys and values of all heads
source.py         encoder-decoders: in the encoder, in the decoder, and between both
rotary.py         rotary positions
distance_bias.py  biases of scores by distance, instead of positions
sinks.py          attention sinks
"""
