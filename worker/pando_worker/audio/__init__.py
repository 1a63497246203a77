"""Speech, from the bytes of a file to segments and words.

Read in this order:
    reader.py     what the HTTP process calls
    hearing.py    what the reading processes do
    files.py      bytes to samples
    features.py   samples to log-mel features
    pauses.py     where a long file may be cut
    arrays.py     the arrays in between
    heard.py      what comes out: features of a whole file, and its windows
    segments.py   a window's tokens to segments; where the next window begins
    drafts.py     answers to windows, for equal ones
    fallback.py   whether a window is decoded again
    alignment.py  when each token is spoken
    words.py      tokens to words
    languages.py  the languages of Whisper
    tokens.py     special tokens and rules of a model
    errors.py     why a file cannot be used

Imports of the worker's other rooms only `reading/`. Without torch.
"""
