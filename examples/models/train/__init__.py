"""Trains pando-tiny, the small model that ships with Pando, from the standard library's own prose.

`python -m examples.models.train` runs the whole recipe; README.md lists what it needs.
"""
