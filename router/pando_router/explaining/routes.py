"""`/route/explain`: where a request would be placed, or why a past one was."""

from typing import Any

from fastapi import APIRouter, Request

from pando_fleet.redis.client import FleetError
from pando_router.configuration.live import Live
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.chat import CHAT
from pando_router.errors import ApiError, unavailable
from pando_router.explaining.explain import Explanation, explain, explain_past
from pando_router.explaining.recent import Recent
from pando_router.fleet_view.models import Models
from pando_router.fleet_view.view import FleetView
from pando_router.parsing.body_reader import BodyReader
from pando_router.placing.dispatch import Dispatcher
from pando_router.placing.pool_policies import PoolPolicies
from pando_router.placing.route import resolve
from pando_router.placing.steering import Steerer
from pando_router.tenants.guard import tenant_of


def explain_routes(
    live: Live,
    view: FleetView,
    dispatcher: Dispatcher,
    policies: PoolPolicies,
    reader: BodyReader,
    recent: Recent,
) -> APIRouter:
    router = APIRouter()

    @router.post("/route/explain")
    async def route_explain(request: Request, path: str = CHAT.paths[0]) -> Explanation:
        if (endpoint := ENDPOINTS.get(path)) is None:
            raise ApiError(400, f"path must be one of {', '.join(ENDPOINTS)}", param="path")
        body, content_type = await request.body(), endpoint.content_type(request.headers.raw)
        asked = await reader.parsed(endpoint, body, content_type)
        if live.settings.drop_volatile_lines and (found := asked.without_volatile_line()):
            asked, _ = found
        tenant = tenant_of(request.scope)
        models = Models(view.fleet, live.settings.aliases, tenant)
        steering = Steerer(live.settings)(request.headers.raw, admin=True)
        prompt = resolve(asked, models, path, steering, tenant)
        try:
            return await explain(dispatcher, policies, prompt, view.is_up)
        except FleetError as error:
            raise unavailable(str(error), "redis_away") from error

    @router.get("/route/explain")
    async def route_explain_past(request_id: str = "") -> dict[str, Any]:
        tries = [explain_past(past) for past in recent.of(request_id)]
        if not tries:
            others, settings = "", live.settings
            if settings.processes > 1:
                others = f"; another of its {settings.processes} processes may have it: try again"
            raise ApiError(
                404,
                f"request {request_id!r} is not among the last {settings.explain_last} that this"
                f" process of the router placed{others}",
                param="request_id",
            )
        return {"request_id": request_id, "tries": tries}

    return router
