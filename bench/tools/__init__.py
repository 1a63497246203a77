"""Tool calls of models that were not trained on any.

    questions.py    generated questions, each with the tool that fits it and two others
    fitting.py      how often a model picks the fitting tool, and whether each call is valid

Imports only clients of the API.
"""
