"""Tokenizers, in the HTTP process and for grammars.

loading.py      loads a model's tokenizer
detokenizer.py  tokens to text, one at a time, no character cut in two
"""
