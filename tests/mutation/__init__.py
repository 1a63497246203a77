"""Breaks the code on purpose, one place at a time, and runs the tests that should notice.

Run: make test-mutations. Read in this order:
    targets.py          which files are broken, and the tests of each
    python_mutants.py   the ways to break a Python file
    lua_mutants.py      the ways to break a script of Redis
    mutant.py           one broken place; the sample of a file's
    trial.py            runs the tests against a mutant, in a copy of the tree
    equivalent.toml     mutants that no test can notice, each with the reason
    __main__.py         draws the samples, tries them, prints the sheet
"""
