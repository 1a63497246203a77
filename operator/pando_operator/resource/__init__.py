"""The `WorkerPool` resource, `pando.dev/v1alpha1`: its types, its rules and its CRD.

Read in this order:
    pool.py        a WorkerPool as the API server gives it
    spec.py        `spec`: model, engine, pods
    policy.py      what a decision follows: bounds, target, behavior, schedules, budget
    adapters.py    `spec.adapters`, and their status
    scaling.py     `spec.scaling`: such a policy, with mode, drain, warm and shadow policies
    status.py      `status`
    tuned_on.py    the annotation of what the scaling was tuned on
    base.py        base classes and schema markers
    rules.py       what a rule between fields is; each part above states its own, `rules`
    parse.py       reads a pool and reports all of its errors
    check.py       checks a value against a structural schema
    structural.py  converts pydantic's schemas to structural ones
    crd.py         builds the CRD

`make generate` writes `engine_schema.json` and `pod_schema.json`. Imports nothing else of the
operator.
"""
