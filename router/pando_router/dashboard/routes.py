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
from pando_router.dashboard.history import INTERVAL_S, POINTS, WINDOW, History
from pando_router.endpoints import ENDPOINTS
from pando_router.fleet_view.decisions import DecisionsView
from pando_router.fleet_view.snapshot import Member
from pando_router.fleet_view.view import FleetView
from pando_router.pages.document import read_document
from pando_router.process.lifecycle import Lifecycle

PAGE_PATH = "/dashboard"
"""Always open: a browser cannot send an API key before the page has asked for it."""

DATA_PATH = "/dashboard/data"

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("chart.js", "replicas.js", "explain.js", "main.js")


def dashboard_routes(
    live: Live,
    view: FleetView,
    lifecycle: Lifecycle,
    history: History,
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
    async def data(after: int = 0) -> Response:
        """`after` is `last` of the caller's newest answer; older points are left out."""
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
            "paths": list(ENDPOINTS),
            "interval_s": INTERVAL_S,
            "window_s": INTERVAL_S * WINDOW,
            "kept_s": INTERVAL_S * POINTS,
            "last": history.last,
            "points": history.after(after),
            "pools": {
                pool: [replica_row(member) for member in members]
                for pool, members in view.fleet.pools.items()
            },
            "queues": queue_lengths(),
            "decisions": await decisions.rows(),
        }
        headers = {"cache-control": "no-store"}
        return Response(msgspec.json.encode(answer), 200, headers, "application/json")

    return router
