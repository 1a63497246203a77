"""Turns a component's pydantic-settings class into a command, and loads its values.

Read in this order:
    options.py  the click command: one option for each setting
    option.py   a click option for one setting
    passed.py   options that a command passes on to the parts that it starts
    wording.py  what a wrong value must be, in words
    load.py     merges flags, environment and YAML file
    fields.py   describes each setting, for help and documentation

Only the component's settings class defines a setting's name, type, default, range and help.
"""
