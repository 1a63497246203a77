"""The policies that a setting of the worker chooses among, a module each.

    schedule/  which waiting request runs next: `schedule_policy`
    eviction/  which cached prefix is evicted first: `eviction_policy`

Each room lists its policies once; settings, `--help`, the chart's schema, the CRD and the pages
have them from there. The settings import this, so it lies below them and loads no numpy at import:
a policy sees requests and nodes through small protocols. Imports fleet's `choices`.
"""
