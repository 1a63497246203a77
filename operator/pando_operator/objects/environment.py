"""The environment of a worker's container: its settings as `PANDO_WORKER_…` variables."""

from typing import Any

from pydantic.alias_generators import to_snake

from pando_operator.lifecycle.pool_state import HAND_OFF_MARK_S
from pando_operator.objects.labels import HTTP_PORT
from pando_operator.objects.quantities import as_text
from pando_operator.resource.pool import WorkerPool
from pando_operator.settings import OperatorSettings

PREFIX = "PANDO_WORKER_"

NOTICE_S = 10
"""Time that the operator needs to set the hand-off mark of a terminating pod."""


def environment(pool: WorkerPool, settings: OperatorSettings) -> list[dict[str, Any]]:
    """The variables, always in the same order. Those of the template replace variables of the same
    name in `settings.worker_variables`."""
    spec = pool.spec
    own = [
        _field("POD_IP", "status.podIP"),
        _field(f"{PREFIX}REPLICA", "metadata.name"),
        {
            "name": f"{PREFIX}REDIS",
            "valueFrom": {
                "secretKeyRef": {
                    "name": settings.worker_redis_secret,
                    "key": settings.worker_redis_secret_key,
                }
            },
        },
    ]
    values = {
        f"{PREFIX}MODEL": spec.model,
        f"{PREFIX}SERVED_MODEL_NAME": spec.model_name,
        f"{PREFIX}POOL": settings.name_in_fleet(pool.metadata.namespace, pool.name),
        f"{PREFIX}HOST": "::",
        f"{PREFIX}PORT": str(HTTP_PORT),
        # The worker puts an IPv6 address in brackets.
        f"{PREFIX}URL": f"http://$(POD_IP):{HTTP_PORT}",
        f"{PREFIX}TENSOR_PARALLEL_SIZE": str(spec.tensor_parallel_size),
        f"{PREFIX}DRAIN_SECONDS": str(spec.scaling.drain.timeout_seconds),
        # Set even if hand-offs are off: marks request them, so a change needs no rollout.
        f"{PREFIX}HAND_OFF_SECONDS": str(
            min(HAND_OFF_MARK_S + NOTICE_S, spec.scaling.drain.timeout_seconds)
        ),
        **{variable(name): _text(value) for name, value in sorted(spec.engine.items())},
    }
    theirs: list[dict[str, Any]] = as_text(list(spec.template.env))
    names = {entry["name"] for entry in theirs}
    further = sorted(settings.worker_variables.items())
    values |= {name: value for name, value in further if name not in names}
    return [*own, *({"name": name, "value": value} for name, value in values.items()), *theirs]


def variable(setting: str) -> str:
    """The variable name for a setting in `spec.engine`."""
    return f"{PREFIX}{to_snake(setting).upper()}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
