"""An output's text as it comes, parted into reasoning, content and tool calls.

Read in this order:
    pieces.py       what comes out
    formats.py      what a tool format is
    registry.py     all formats by name; to add one, copy hermes.py and register it here
    hermes.py, llama3.py, mistral.py, qwen3_coder.py
    reasoning.py    reasoning between two tags
    output.py       the parser of a whole output
    reader.py       reads text up to a format's marker, then what the format says
    scanning.py     where is the next marker, and where does this JSON end
    call_object.py  a call as a JSON object
    xml_values.py   parameters as plain text
    emitter.py      numbers the calls
    tools.py        the tools that a request offers
    lark.py         parts of grammars

Imports the server's errors alone.
"""
