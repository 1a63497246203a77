"""A model's files to a model with weights.

Read in this order:
    hub.py                where the files are
    packaged.py           models that come as Python packages
    gguf/                 llama.cpp's format, as a model directory
    preflight.py          what the heads of the files say, before anything starts
    checkpoint_tensor.py  a tensor that is read a part at a time
    checkpoint.py         tensors by name, whatever files they are in
    quantization.py       checkpoints of quantized weights
    schemes/              how weights become integers
    quantize.py           a model whose weights are integers
    keep_narrow.py        a model whose fp8 or mxfp4 weights stay as they are
    keep_halves.py        a decoder whose weights stay in 16 bits
    kv_scales.py          scales of keys and values in fp8
    fills.py              what of a checkpoint a model needs
    building.py           a model without memory for its parameters
    allocation.py         their memory
    named_tensors.py      a checkpoint's tensors by the names of parameters
    loader.py             fills a model
    dummy.py              random weights, for measurements

Imports config, registry and layers; preflight imports the worker's settings.
"""
