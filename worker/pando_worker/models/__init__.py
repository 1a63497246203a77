"""Models: their configuration, layers, families and loading.

Read in this order:
    registry.py            finds the file with a model's code
    config.py              `config.json`, as the engine and the family need it
    kinds/                 what it says of models that are no plain decoders of text
    families/              one file per family
    layers/                the layers that families are composed of
    build.py               the context in which layers are created
    ops.py                 the operations of layers, torch's or faster ones
    mixture.py             what a mixture of experts computes: gates, weights, routes
    grouped.py             matrices of small integers
    mxfp4.py               matrices of 4-bit floats
    fp8.py                 matrices of 8-bit floats, and a device's products with them
    lora/                  what adapters add
    parallel.py            the ranks that compute one model together
    rope.py                rotary parameters in one form
    layer_types.py         which layers have a sliding window
    safetensors_files.py   what a file of weights says about itself
    sight.py               whether a model with a vision part sees here
    generation_config.py   end-of-sequence tokens and default sampling parameters
    loading/               loads weights: hub, checkpoints, quantization
    transformers_backend/  families that have no file here
    errors.py              why a model cannot be served

Imports attention and tensors. A new family is one file in `families/` and its line in
`registry.py`.
"""
