"""Plots as inline SVG that takes its colours from the page, so that one page works in light and
dark mode. `canvas` makes such an SVG from a matplotlib figure.
"""
