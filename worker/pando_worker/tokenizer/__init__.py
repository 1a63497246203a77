"""Tokenizers, for the HTTP process and for grammars.

loading.py      loads a model's tokenizer with transformers
essentials.py   the parts that a start needs, kept in the user's cache
detokenizer.py  turns tokens into text, one at a time, without splitting a character
"""
