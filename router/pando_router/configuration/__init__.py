"""The settings: read and checked at the start, and reloaded when their file changes.

Read in this order:
    settings.py       every setting, in one place
    setting_types.py  types of the fields
    upstream_spec.py  an upstream in the settings
    live.py           the settings in effect
    reloader.py       watches the file

Everything else reads `Live`; a part that keeps a derived value holds a `current.Current`.
"""
