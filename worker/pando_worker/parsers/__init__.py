"""Splits an output's text, as it arrives, into reasoning, content and tool calls.

Read in this order:
    pieces.py       the results of parsing
    formats.py      the interface of a tool format
    registry.py     all formats by name; to add one, copy hermes.py and list it here
    hermes.py, llama3.py, mistral.py, qwen3_coder.py
    reasoning.py    reasoning between two tags
    output.py       the parser of a whole output
    reader.py       reads text up to a format's marker, then the format's own steps
    scanning.py     finds the next marker, and the end of a JSON value
    call_object.py  reads a call that is a JSON object
    xml_values.py   turns plain-text parameters into JSON
    emitter.py      collects and numbers the calls
    tools.py        the tools that a request offers
    lark.py         parts of grammars in Lark syntax

Below the settings, which take the formats' names from the registry. Imports fleet's errors.
"""
