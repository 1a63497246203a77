"""The `WorkerPool` resource, `pando.dev/v1alpha1`: its types, its rules and its CRD."""
