"""Calls whose parameters stand in tags as plain text: Qwen3-Coder's, GLM's and MiniMax's.

Read in this order:
    calls.py    reads them; `XmlForm` says which tags
    values.py   turns plain-text parameters into JSON
    grammar.py  the grammar of such calls
    texts.py    the grammar of strings that have a pattern or lengths
"""
