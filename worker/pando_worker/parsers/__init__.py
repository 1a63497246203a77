"""Splits an output's text, as it arrives, into reasoning, content and tool calls.

Read in this order:
    pieces.py       the results of parsing
    formats.py      the interface of a tool format
    families/       the tool formats; to add one, copy hermes.py and list it in the registry
    registry.py     all formats by name, and which one a chat template shows
    reasoning.py    reasoning between two tags
    harmony.py      the channels of gpt-oss
    output.py       the parser of a whole output
    beside.py       reads calls or an answer that has a grammar of its own
    reader.py       reads text up to a format's marker, then the format's own steps
    arrays.py       reads calls in one JSON array
    headed.py       reads calls with a head that has the name, then JSON
    xml/            reads calls whose parameters stand in tags
    scanning.py     finds the next marker, and the end of a JSON value
    call_object.py  reads a call that is a JSON object
    emitter.py      collects and numbers the calls
    tools.py        the tools that a request offers
    lark.py         parts of grammars in Lark syntax

Below the settings, which take the formats' names from the registry. Imports fleet's errors.
"""
