"""Turns text into tokens, and tokens into text.

Read in this order:
    tokenizer.py     text or messages to token ids, and back
    long_texts.py    refuses or truncates texts that are far too long
    pairs.py         texts and pairs with the tokens around them, truncated
    prompt_meter.py  measures the bytes per prompt token
    reader.py        turns one request's tokens into final text
    stop_strings.py  finds stop strings in text that arrives in pieces

`pando_worker.tokenizer` loads the tokenizer. `pando_worker.parsers` splits an output's text into
reasoning, content and tool calls.
"""
