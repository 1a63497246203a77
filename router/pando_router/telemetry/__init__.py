"""What is counted, traced and logged; the events come from `listeners/`.

Read in this order:
    metrics.py         every metric
    tallies.py         numbers of every request, counted in plain Python
    tenant_metrics.py  what is counted of tenants
    shared_metrics.py  metrics of several processes as one page
    tracing.py         a request's span and its children
    bounded_log.py     log lines that may come once a request

Imports core and http for their types.
"""
