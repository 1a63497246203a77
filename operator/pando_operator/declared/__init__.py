"""WorkerPools that a ConfigMap declares, as the chart's `pools` are: applied after it has changed.

Helm cannot create objects of a kind that comes with the same release, so the chart writes them into
a ConfigMap and runs `python -m pando_operator.declared NAMESPACE CONFIGMAP` as a hook.
"""
