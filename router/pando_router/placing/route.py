"""`Prompt`: a request whose model is resolved to the pools that serve it."""

import msgspec

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.fleet_view.models import Models
from pando_router.fleet_view.snapshot import Target
from pando_router.placing.steering import UNSTEERED, Steering
from pando_router.requests.request import KEPT_BYTES, Request


class Prompt(msgspec.Struct, frozen=True):
    """A request as every placement of it needs it."""

    request: Request
    targets: tuple[Target, ...]  # at least one
    keys: bytes  # packed chunk keys
    steering: Steering = UNSTEERED
    rename: str | None = None  # the model's name in the forwarded body, if it differs
    tenant: Tenant = OPEN
    may_be_held_back: bool = True  # its session may wait for memory
    within_s: float | None = None  # time limit in Redis, instead of placement_timeout

    @property
    def affinity(self) -> bytes:
        """What requests that share a cache entry have in common: the adapter that they need, else
        the start of the prompt."""
        return self.targets[0].adapter_key.encode() or self.request.prefix[:CHUNK_BYTES]

    @property
    def session(self) -> bytes:
        """The session that a header names, or the body (`Request.user`); empty for none."""
        return self.steering.session or (self.request.user or "").encode()


def resolve(
    request: Request,
    models: Models,
    path: str,
    steering: Steering = UNSTEERED,
    tenant: Tenant = OPEN,
) -> Prompt:
    """Finds the pools that can answer.

    Raises ApiError: 404 for an unknown model, or one that does not serve `path`; 400 if the request
    names no model but there are several; 503 before any replica has joined.
    """
    served = models.find(request.model, path)
    first = served.targets[0]
    if request.images and first.image_rule is not None:
        request = request.with_image_tokens(first.image_rule)
    keys = request.keys(first.model, first.adapter_key, tenant.salt)
    if len(request.prefix) > KEPT_BYTES:
        request = request.with_cut_prefix()
    return Prompt(request, served.targets, keys, steering, served.rename, tenant)
