"""Writes the files that are made from code: pages, schemas, the CRD, the chart's table.

    __main__.py        the command: runs all of them in order, or lists stale files
    crd.py             the WorkerPool's CRD and the schemas it is made of
    values.py          the chart's table of values, its schema and its copy of the dashboard
    configuration.py   docs/configuration.md
    metrics.py         docs/metrics.md
    endpoints.py       the table of endpoints in docs/api.md
    registries.py      the tables of policies, scalers and parsers
    scaling.py         the examples and the table of fields in docs/scaling.md

Each module's `files()` yields a path and the text that the file must have. May import every part.
"""
