"""Texts to tokens, and tokens to text.

Read in this order:
    tokenizer.py     text or messages to token ids, and back
    long_texts.py    texts far too long, refused or cut
    prompt_meter.py  bytes a prompt token
    reader.py        one request's tokens to final text
    stop_strings.py  stop strings in text that comes in pieces
    parsers/         reasoning and tool calls in a model's output

How a tokenizer is loaded is in `pando_worker.tokenizer`.
"""
