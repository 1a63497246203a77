"""What the fleet has: `/fleet`, and the models that a client may use."""

from collections.abc import Callable
from time import time
from typing import Any

from fastapi import APIRouter, Request

from pando_router.configuration.live import Live
from pando_router.fleet_view.decisions import DecisionsView
from pando_router.fleet_view.models import Card, Models
from pando_router.fleet_view.snapshot import Member
from pando_router.fleet_view.view import FleetView
from pando_router.tenants.guard import tenant_of


def fleet_routes(
    live: Live,
    view: FleetView,
    replica_row: Callable[[Member], dict[str, Any]],
    queue_lengths: Callable[[], dict[str, int]],
    decisions: DecisionsView,
) -> APIRouter:
    router = APIRouter()
    started = int(time())

    def names(request: Request) -> Models:
        return Models(view.fleet, live.settings.aliases, tenant_of(request.scope))

    @router.get("/fleet")
    async def fleet() -> dict[str, Any]:
        pools = {
            pool: [replica_row(member) for member in members]
            for pool, members in view.fleet.pools.items()
        }
        return {
            **view.redis.row,
            "pools": pools,
            "queues": queue_lengths(),  # of this router only
            "decisions": await decisions.rows(),  # of the operator, newest first
        }

    @router.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        served = names(request)
        cards = [_model(served.card(name), started) for name in served.names()]
        return {"object": "list", "data": cards}

    @router.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> dict[str, Any]:
        return _model(names(request).card(name), started)

    return router


def _model(card: Card, created: int) -> dict[str, Any]:
    return {
        "id": card.name,
        "object": "model",
        "created": created,
        "owned_by": "pando",
        "root": card.root,
        "parent": card.parent,
        "max_model_len": card.max_tokens or None,
    }
