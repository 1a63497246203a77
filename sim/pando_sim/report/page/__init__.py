"""The report: one HTML file with everything in it.

page.py     what is on the page, in which order
verdict.py  its first sentences
"""
