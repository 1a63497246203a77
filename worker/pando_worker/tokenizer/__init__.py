"""Tokenizers, in the HTTP process and for grammars.

loading.py      loads a model's tokenizer with transformers
essentials.py   what a start needs of it, kept in the user's cache
detokenizer.py  tokens to text, one at a time, no character cut in two
"""
