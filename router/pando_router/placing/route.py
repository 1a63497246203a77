"""A request with a model that exists, and a place for it."""

import msgspec

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.fleet_view.models import Models
from pando_router.fleet_view.view import Target
from pando_router.placing.steering import UNSTEERED, Steering
from pando_router.requests.request import Request


class Prompt(msgspec.Struct, frozen=True):
    """What every try to place a request needs."""

    request: Request
    targets: tuple[Target, ...]  # at least one
    keys: bytes  # packed chunk keys
    steering: Steering = UNSTEERED
    rename: str | None = None  # what the forwarded body calls the model, where not as it came
    tenant: Tenant = OPEN
    within_s: float | None = None  # for a placement in Redis, in place of placement_timeout

    @property
    def affinity(self) -> bytes:
        """The start of the prompt: what requests that share a cache entry have in common."""
        return self.request.prefix[:CHUNK_BYTES]


def resolve(
    request: Request,
    models: Models,
    path: str,
    steering: Steering = UNSTEERED,
    tenant: Tenant = OPEN,
) -> Prompt:
    """Finds who can answer. Raises ApiError: 404 for an unknown model, or one without `path`; 400
    where none is named but there are several; 503 where nobody is there yet."""
    served = models.find(request.model, path)
    first = served.targets[0]
    keys = request.keys(first.model, first.adapter, tenant.salt)
    return Prompt(request, served.targets, keys, steering, served.rename, tenant)
