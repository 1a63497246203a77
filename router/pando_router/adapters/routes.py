"""`POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter`, in vLLM's form: at all replicas of a
pool, with each one's answer."""

from collections import Counter
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from pando_fleet.http.request_id import request_id_of
from pando_fleet.http.time_limit import time_limit_s
from pando_router.adapters.everywhere import BAD_GATEWAY, Everywhere, Result
from pando_router.configuration.live import Live
from pando_router.errors import ApiError, bad_request, unavailable
from pando_router.fleet_view.snapshot import Fleet, Member, MemberState
from pando_router.fleet_view.view import FleetView
from pando_router.tenants.guard import tenant_of

LOAD_PATH = "/v1/load_lora_adapter"
UNLOAD_PATH = "/v1/unload_lora_adapter"

_REACHED = frozenset(MemberState) - {MemberState.LOST, MemberState.DRAINING}


class Change(msgspec.Struct, kw_only=True):
    """The fields that the router reads; the others are the replicas' affair."""

    lora_name: str
    pool: str | None = None


class Answered(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer; `error` unless all replicas answered 200."""

    lora_name: str
    pool: str
    replicas: list[Result]
    error: dict[str, str | None] | None = None


def adapter_routes(live: Live, view: FleetView, everywhere: Everywhere) -> APIRouter:
    router = APIRouter()

    async def change(request: Request) -> Response:
        fields, wanted = _read(await request.body())
        pool, members = _members(view.fleet, wanted.pool)
        fields.pop("pool", None)
        headers = request.headers.raw
        results = await everywhere(
            members,
            request.url.path,
            msgspec.json.encode(fields),
            [(b"content-type", b"application/json"), *_authorization(headers)],
            request_id_of(headers),
            tenant_of(request.scope),
            min(time_limit_s(headers), live.settings.first_byte_timeout),
        )
        status, error = _judged(results)
        outcome = Answered(lora_name=wanted.lora_name, pool=pool, replicas=results, error=error)
        return Response(msgspec.json.encode(outcome), status, media_type="application/json")

    @router.post(LOAD_PATH, responses={502: {"description": "some replicas did not load it"}})
    async def load_lora_adapter(request: Request) -> Response:
        """Loads an adapter at all replicas of `pool`, which may be left out if there is only one
        pool. The other fields go to the replicas: `lora_name`, `lora_path`, `load_inplace`,
        `pin`."""
        return await change(request)

    @router.post(UNLOAD_PATH, responses={502: {"description": "some replicas did not unload it"}})
    async def unload_lora_adapter(request: Request) -> Response:
        """Unloads an adapter at all replicas of `pool`."""
        return await change(request)

    return router


def _read(body: bytes) -> tuple[dict[str, Any], Change]:
    """The body as it is, and what the router reads of it. Raises ApiError 400."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
        return fields, msgspec.convert(fields, Change)
    except msgspec.MsgspecError as error:
        raise bad_request(f"the body must name an adapter in lora_name: {error}") from None


def _members(fleet: Fleet, pool: str | None) -> tuple[str, list[Member]]:
    """The pool, and its replicas that can be reached. Raises ApiError: 400 if none is named but
    there are several; 404 for an unknown one; 503 if it has no replica that can be reached."""
    pools = ", ".join(fleet.pools)
    if pool is None:
        if len(fleet.pools) > 1:
            raise bad_request(f"the request must name a pool, one of {pools}", "pool")
        pool = next(iter(fleet.pools), None)
        if pool is None:
            raise unavailable("no replica has joined the fleet yet", "no_replicas")
    if pool not in fleet.pools:
        known = pools or "none"
        raise ApiError(404, f"pool {pool[:200]!r} does not exist; there is {known}", param="pool")
    members = [member for member in fleet.pools[pool] if member.state in _REACHED]
    if not members:
        raise unavailable(f"no replica of pool {pool!r} can be reached", "no_replicas")
    return pool, members


def _authorization(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The client's key, for workers that check keys themselves."""
    return [(name, value) for name, value in headers if name in (b"authorization", b"x-api-key")]


def _judged(results: list[Result]) -> tuple[int, dict[str, str | None] | None]:
    """The status for the client, and an error unless all replicas answered 200: with their own
    status if all answered the same, else 502."""
    statuses = Counter(result.status for result in results)
    failed = [result for result in results if result.status != 200]
    if not failed:
        return 200, None
    status = failed[0].status if len(statuses) == 1 else BAD_GATEWAY
    first = failed[0]
    error: dict[str, str | None] = {
        "message": f"{len(failed)} of {len(results)} replicas did not do it, such as"
        f" {first.replica}: {first.message}",
        "type": "invalid_request_error" if status < 500 else "upstream_error",
        "param": None,
        "code": "adapter_change_failed",
    }
    return status, error
