"""Where bodies are parsed: in the event loop, beside it, or in a process.

    body_reader.py   chooses by the body's size
    large_bodies.py  what that process does

Imports `endpoints`, whose parsers it calls.
"""
