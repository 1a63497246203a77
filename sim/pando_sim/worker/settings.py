"""The settings with which a simulated worker runs."""

from pando_sim.spec import WorkerSpec
from pando_worker.settings import WorkerSettings

MODEL = "simulated"


def settings_of(spec: WorkerSpec) -> WorkerSettings:
    """Raises pydantic's ValidationError if `spec.engine` has unknown settings of a worker."""
    given: dict[str, object] = {
        "model": MODEL,
        "page_size": spec.page_size,
        "chunked_prefill_size": spec.chunked_prefill_size,
        "max_running_requests": spec.max_running_requests,
        **spec.engine,
        "overlap_schedule": False,  # host time is hidden behind the steps, which the model times
        # No variable has such a prefix, so a simulation does not depend on the environment.
        "_env_prefix": "=",
    }
    return WorkerSettings(**given)  # type: ignore[arg-type]
