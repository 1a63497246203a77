"""What `config.json` says of models that are more, or less, than a decoder of text with its head.

Read in this order:
    base_model.py       checkpoints without a head
    classifier.py       the heads of models that classify texts
    text_encoder.py     models whose tokens all see each other
    encoder_decoder.py  what the encoders of encoder-decoders read
    text_part.py        the language model in a model of text and images

Needs no torch, since the HTTP process asks as well. Imported by `config.py` and by what depends on
the kind; what computes these models is in `layers/` and `families/`.
"""
