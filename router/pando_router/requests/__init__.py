"""Parsing of bodies that endpoints have in common.

request.py  the parsed request
fields.py   single fields, and prompts as canonical bytes
rename.py   another model's name in a body
hints.py    fields that OpenAI's generating endpoints share
plain.py    prompts as texts or token ids
tools.py    tools, cached because they come with every turn

Only what decides the placement is checked; the replica validates everything else and gets the bytes
unchanged.
"""
