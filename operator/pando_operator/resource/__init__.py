"""The `WorkerPool` resource, `pando.dev/v1alpha1`: its types, its rules and its CRD.

Read in this order:
    pool.py        a WorkerPool as the API server gives it
    spec.py        `spec`: model, engine, pods
    scaling.py     `spec.scaling`
    policy.py      the part of it that decides
    status.py      `status`
    base.py        what all parts share
    rules.py       what must hold between fields, for the API server and for the operator
    parse.py       reads a pool, and says all that is wrong
    check.py       a value against a structural schema
    structural.py  structural schemas of pydantic's
    crd.py         the CRD of all these

`make generate` writes `engine_schema.json` and `pod_schema.json`. Imports nothing else of the
operator.
"""
