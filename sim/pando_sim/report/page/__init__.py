"""The report: one HTML file with everything in it.

page.py     the page's contents and their order
verdict.py  its first sentences
"""
