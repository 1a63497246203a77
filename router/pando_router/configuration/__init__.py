"""The settings: read at the start, checked, and taken over anew when their file changes.

Read in this order:
    settings.py       every setting, in one place
    setting_types.py  what fields are declared with
    upstream_spec.py  an upstream as the settings name it
    live.py           the settings that hold now
    reloader.py       watches the file

Everything above reads `Live`; a part that keeps a value of its own holds a `current.Current`.
"""
