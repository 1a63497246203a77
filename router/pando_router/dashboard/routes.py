"""The dashboard's two paths: the page, which contains no data, and the data, for admins."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from pando_router.configuration.live import Live
from pando_router.dashboard.history import INTERVAL_S, POINTS, WINDOW
from pando_router.dashboard.requests import RecentRequests
from pando_router.dashboard.sampler import Sampler
from pando_router.endpoints import ENDPOINTS
from pando_router.endpoints.endpoint import JSON
from pando_router.fleet_view.decisions import DecisionsView
from pando_router.fleet_view.snapshot import Fleet, Member
from pando_router.fleet_view.view import FleetView
from pando_router.pages.document import read_document
from pando_router.process.lifecycle import Lifecycle

PAGE_PATH = "/dashboard"
"""Always open: a browser cannot send an API key before the page has asked for it."""

DATA_PATH = "/dashboard/data"

PAGE = Path(__file__).with_name("page")
SCRIPTS = (
    *("scale.js", "chart.js", "events.js", "models.js", "card.js", "pools.js", "requests.js"),
    *("samples.js", "explain.js", "freshness.js", "main.js"),
)

REPLICA_FIELDS = (
    *("replica", "incarnation", "model", "state", "stage", "stage_done", "age_ms"),
    *("breaker", "healthy"),
    *("running", "waiting", "in_flight", "hit_rate"),
    *("capacity_tokens", "pinned_tokens", "cached_tokens", "free_tokens"),
    *("prefill_tokens_per_s", "decode_tokens_per_s", "adapter_slots", "free_adapter_slots"),
    *("encoded_sources", "source_hit_rate"),
)
"""Of a replica's row: /fleet has more, such as hundreds of adapters."""


def dashboard_routes(
    live: Live,
    view: FleetView,
    lifecycle: Lifecycle,
    sampler: Sampler,
    requests: RecentRequests,
    queue_lengths: Callable[[], dict[str, int]],
    replica_row: Callable[[Member], dict[str, Any]],
    decisions: DecisionsView,
) -> APIRouter:
    """Raises OSError if the package lacks the page's files."""
    router = APIRouter(include_in_schema=False)
    page = read_document(PAGE, SCRIPTS)
    started = time()
    identity = uuid4().hex  # the numbers of points belong to this process

    @router.get(PAGE_PATH)
    async def dashboard() -> HTMLResponse:
        return HTMLResponse(page.html, headers=page.headers)

    @router.get(DATA_PATH)
    async def data(after: int = 0, event: int = 0, request: int = 0) -> Response:
        """The parameters are `last`, `last_event` and `last_request` of the caller's newest answer;
        what is older is left out."""
        history, events = sampler.history, sampler.events.ring
        answer = {
            "router": {
                "id": identity,
                "host": socket.gethostname(),
                "process": os.getpid(),
                "processes": live.settings.processes,
                "policy": live.settings.policy,
                "redis": view.redis.worst.value,
                "draining": lifecycle.draining,
                "chat": live.settings.chat_page,
                "up_s": time() - started,
            },
            "now": time(),
            "paths": _served_paths(view.fleet),
            "interval_s": INTERVAL_S,
            "window_s": INTERVAL_S * WINDOW,
            "kept_s": INTERVAL_S * POINTS,
            "last": history.last,
            "points": history.after(after),
            "pools": {
                pool: [_shown(replica_row(member)) for member in members]
                for pool, members in view.fleet.pools.items()
            },
            "queues": queue_lengths(),
            "models": sampler.replicas.rates(),
            "last_event": events.last,
            "events": events.after(event),
            "last_request": requests.last,
            "requests": requests.after(request),
            "decisions": await decisions.rows(),
        }
        headers = {"cache-control": "no-store"}
        return Response(msgspec.json.encode(answer), 200, headers, "application/json")

    return router


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in REPLICA_FIELDS}


def _served_paths(fleet: Fleet) -> list[str]:
    """The endpoints with JSON bodies, which a person can type, that at least one replica serves, as
    far as known."""
    beats = [member.beat for members in fleet.pools.values() for member in members]
    typed = [path for path, endpoint in ENDPOINTS.items() if endpoint.media == JSON]
    return [path for path in typed if any(beat.serves(path) for beat in beats)]
