"""A request with a model that exists, and a place for it."""

from dataclasses import dataclass

from pando_fleet.placement import Placement, Placer
from pando_fleet.prefix import CHUNK_BYTES
from pando_router.errors import bad_request, unavailable, unknown_model
from pando_router.fleet_view import Fleet, Target
from pando_router.requests import Request
from pando_router.steering import UNSTEERED, Steering


@dataclass(frozen=True, slots=True)
class Prompt:
    """What every try to place a request needs."""

    request: Request
    targets: tuple[Target, ...]  # at least one
    keys: bytes  # packed chunk keys
    steering: Steering = UNSTEERED

    @property
    def affinity(self) -> bytes:
        """The start of the prompt: what requests that share a cache entry have in common."""
        return self.request.prefix[:CHUNK_BYTES]


@dataclass(frozen=True, slots=True)
class Lease:
    """The shared placement's word on a route, and who can take it back."""

    placer: Placer
    placement: Placement


@dataclass(frozen=True, slots=True)
class Route:
    """A replica for one try; without a lease where Redis had no part in it."""

    pool: str
    replica: str
    incarnation: str
    url: str
    lease: Lease | None = None

    @property
    def matched_chunks(self) -> int:
        return self.lease.placement.chosen.matched_chunks if self.lease else 0

    @property
    def matched_tokens(self) -> int:
        return self.lease.placement.chosen.matched_tokens if self.lease else 0


def resolve(request: Request, fleet: Fleet, steering: Steering = UNSTEERED) -> Prompt:
    """Finds the model. Raises ApiError: 404 unknown, 400 none named, 503 nobody is there yet."""
    models = fleet.models
    if not models:
        raise unavailable("no replica has joined the fleet yet", "no_replicas")
    model = request.model
    if model is None:
        if len(models) > 1:
            raise bad_request(f"name a model; there are {', '.join(sorted(models))}", "model")
        (model,) = models
    if model not in models:
        raise unknown_model(model, sorted(models))
    return Prompt(request, models[model], request.keys(model), steering)
