"""What Python and Lua agree on in Redis, once: constants, rows, and each script's arguments.

Read in this order:
    constants.py   numbers and words that both know
    packed.py      how a row's fields become bytes
    rows.py        the rows and the packed answers
    calls.py       each script's keys and arguments, and the operations of settle.lua
    lua.py         what the `$` of the Lua files stand for: all of the above, by name

Imports nothing else of this package; imported by whatever calls a script.
"""
