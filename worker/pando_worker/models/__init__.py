"""Models: what `config.json` says, the layers, the families, and how they are loaded.

Read in this order:
    registry.py            which file has a model's code
    config.py              `config.json`, as the engine and the family need it
    families/              one file a family
    layers/                what families are composed of
    build.py               what all layers are made with
    ops.py                 the operations of layers, torch's or faster
    grouped.py             matrices of small integers
    parallel.py            the ranks that compute one model together
    rope.py                rotary parameters in one form
    layer_types.py         layers that see differently far
    base_model.py          checkpoints without a head
    text_part.py           the language model of a model of text and images
    generation_config.py   where outputs end, how a model likes to be sampled
    loading/               weights into a model: hub, checkpoints, quantization
    transformers_backend/  families that have no file here
    errors.py              why a model cannot be served

Imports attention and tensors. A new family is one file in `families/` and its line in
`registry.py`.
"""
