"""Applies the WorkerPools that a ConfigMap declares, such as the chart's `pools`.

Helm cannot create objects of a kind that the same release defines. So the chart writes the pools
into a ConfigMap and runs `python -m pando_operator.declared apply NAMESPACE CONFIGMAP` as a hook,
and `delete` before the release is uninstalled.
"""
