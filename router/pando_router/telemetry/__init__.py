"""Metrics, traces and bounded log lines; `listeners/` feeds them with requests' events.

Read in this order:
    metrics.py          every metric
    tallies.py          cheap counters for every request
    tenant_metrics.py   metrics by tenant
    adapter_metrics.py  metrics by adapter
    shared_metrics.py   joins the metrics of several processes
    tracing.py          a request's span and its children
    bounded_log.py      limits log lines that could occur with every request

Imports core and http for their types.
"""
