"""What Python and Lua share about Redis, defined once: constants, rows, and scripts' arguments.

Read in this order:
    constants.py   numbers and words that both use
    packed.py      how a row's fields become bytes
    rows.py        the rows and the packed answers
    calls.py       each script's keys and arguments, and the operations of settle.lua
    parts.py       the Lua files that each script is made of
    lua.py         what each `$` in the Lua files is replaced with: all of the above, by name

Imports nothing else of this package; every caller of a script imports it.
"""
