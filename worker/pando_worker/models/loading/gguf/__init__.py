"""GGUF, the format of llama.cpp: one file with a model's configuration, tokenizer and weights.

Read in this order:
    header.py         metadata and where each tensor is, all of it checked
    metadata.py       metadata by key and type
    types.py          the types of tensors that are read
    architectures.py  a GGUF architecture in the terms of `config.json` and of our families
    rope.py           its rotary parameters
    tokenizer.py      the tokenizer's files
    directory.py      a model directory beside the file, written once
    decoding.py       numbers out of its blocks (on a CPU most stay blocks: `schemes/blocks.py`)
    tensors.py        a tensor, decoded as it is read
    gpt_oss.py        GPT-OSS's experts, in the family's form
    read.py           all tensors, named as our families know them

So the rest of the worker sees a model directory whose weights happen to be in GGUF. Only the four
with tensors import torch.
"""
