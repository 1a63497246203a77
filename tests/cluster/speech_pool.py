"""The pool of `test_speech.py`: a tiny Whisper, whose files a ConfigMap holds."""

from typing import Any

from tests.cluster.release import RESOURCES

POOL = "hearer"
REPLICAS = 2
_DIRECTORY = "/hearer"


def worker_pool() -> dict[str, Any]:
    """In the form that the API server takes."""
    spec = {
        "model": _DIRECTORY,
        "servedModelName": POOL,
        "replicas": REPLICAS,
        "engine": {
            "threads": 1,
            "memoryGib": 0.5,
            "maxTotalTokens": 8192,
            "maxAudioSeconds": 60,
            "cpuKernels": "off",  # transformers' tokens to the last, from random weights
        },
        "template": {
            "resources": RESOURCES,
            "volumes": [{"name": POOL, "configMap": {"name": POOL}}],
            "volumeMounts": [{"name": POOL, "mountPath": _DIRECTORY}],
        },
    }
    body = {"apiVersion": "pando.dev/v1alpha1", "kind": "WorkerPool"}
    return body | {"metadata": {"name": POOL}, "spec": spec}
