"""How endpoints read bodies: what they have in common.

request.py  what the router keeps of a request
fields.py   single fields, and prompts as canonical bytes
hints.py    fields that OpenAI's generating endpoints share
plain.py    prompts as texts or token ids
tools.py    tools, remembered as they come with every turn

Only what decides where a request goes is checked; the replica judges everything else, and gets the
bytes as they came.
"""
