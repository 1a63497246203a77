"""From a component's pydantic-settings class to command flags, and from all sources to its values.

`command` makes the click command, `load` merges flags, environment and YAML file. A component's
settings class is the only place where a setting has its name, type, default, range and help.
"""
