"""Resolves the model names that clients use to the replicas that serve them.

A name is an alias (checked first, because the operator sets it), a model that replicas serve, or a
LoRA adapter. `Models` reads one snapshot of the fleet.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from pando_router.api_keys.tenant import OPEN, Tenant
from pando_router.errors import ApiError, bad_request, unavailable
from pando_router.fleet_view.snapshot import Fleet, Target

SHOWN = 50  # most names in an error
SHOWN_LETTERS = 200  # of an unknown name in an error


class Served(msgspec.Struct, frozen=True):
    """A request's model, resolved."""

    targets: tuple[Target, ...]  # at least one; each has members, not all of which are ready
    rename: str | None  # the replicas' name for it, if it differs from the client's


@dataclass(frozen=True, slots=True)
class Card:
    """A name in /v1/models."""

    name: str
    root: str  # an alias's model or adapter, otherwise the name itself
    parent: str | None  # an adapter's model
    max_tokens: int  # of a prompt and its answer; 0 if unknown


class Models:
    """The names that a tenant may use; all others do not exist for it."""

    def __init__(self, fleet: Fleet, aliases: Mapping[str, str], tenant: Tenant = OPEN) -> None:
        self._fleet = fleet
        self._aliases = aliases
        self._tenant = tenant

    def find(self, name: str | None, path: str) -> Served:
        """The pools that can answer a request for `name` at `path`; None means the only model.

        Raises ApiError: 404 for an unknown name, or if no replica of it serves `path`; 400 if no
        model is named but there are several; 503 before any replica has joined.
        """
        fleet = self._fleet
        if not fleet.models:
            raise unavailable("no replica has joined the fleet yet", "no_replicas")
        if name is None:
            if len(fleet.models) > 1:
                names = ", ".join(self.names())
                raise bad_request(f"the request must name a model, one of {names}", "model")
            (name,) = fleet.models
        if not self._tenant.may_use(name):
            raise self._unknown(name, name)
        real = self._aliases.get(name, name)
        targets = fleet.serving(real, path)
        if targets is None:
            raise self._unknown(name, real)
        if not targets:
            raise self._no_endpoint(name, real, path)
        return Served(targets, real if real != name else None)

    def names(self) -> list[str]:
        """All names that a client may use now."""
        fleet = self._fleet
        known = fleet.models.keys() | fleet.adapters.keys()
        names = known | {alias for alias, real in self._aliases.items() if real in known}
        return sorted(filter(self._tenant.may_use, names))

    def card(self, name: str) -> Card:
        """Raises ApiError 404 for an unknown name."""
        real = self._aliases.get(name, name)
        if not self._tenant.may_use(name):
            raise self._unknown(name, name)
        targets = self._fleet.targets(real)
        if targets is None:
            raise self._unknown(name, real)
        parent = targets[0].model if targets[0].adapter else None
        longest = (m.beat.max_request_tokens for target in targets for m in target.members)
        return Card(name, real, parent, max(longest, default=0))

    def _unknown(self, name: str, real: str) -> ApiError:
        names = self.names()
        exist = ", ".join(map(repr, names[:SHOWN])) or "none that you may use"
        if len(names) > SHOWN:
            exist += f" and {len(names) - SHOWN} more"
        what = f"model {name[:SHOWN_LETTERS]!r}"
        if name != real:
            what += f", an alias of {real!r},"
        return ApiError(
            404,
            f"{what} does not exist; there is {exist}",
            param="model",
            code="model_not_found",
        )

    def _no_endpoint(self, name: str, real: str, path: str) -> ApiError:
        paths = {
            endpoint
            for target in self._fleet.targets(real) or ()
            for member in target.members
            for endpoint in member.beat.endpoints
        }
        message = f"no replica of model {name!r} serves {path}; they serve"
        message += f" {', '.join(sorted(paths))}"
        able = [other for other in self.names() if self._serves(other, path)]
        if able:
            message += f". {path} is served by {', '.join(map(repr, able[:SHOWN]))}"
        return ApiError(404, message, param="model", code="endpoint_not_found")

    def _serves(self, name: str, path: str) -> bool:
        return bool(self._fleet.serving(self._aliases.get(name, name), path))
