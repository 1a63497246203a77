"""Plots as SVG that stands inside a page and takes its colours from there, so that one page is
right in the light and in the dark. `canvas` makes such an SVG of a matplotlib figure.
"""
