"""Reads, deletes and cancels responses at the replica that keeps them.

OpenAI's `GET` and `DELETE /v1/responses/{id}`, `POST …/cancel` and `GET …/input_items`. They take
no place on the replica, which itself answers whether it knows the id.
"""

import re
from dataclasses import dataclass

from pando_fleet.http.request_id import request_id_of
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.redis.client import FleetUnavailable
from pando_router.configuration.live import Live
from pando_router.endpoints.responses import STORED_METHODS, STORED_PREFIX
from pando_router.errors import (
    CLIENT_CLOSED_REQUEST,
    ApiError,
    ClientDisconnectedError,
    error_answer,
    unavailable,
)
from pando_router.fleet_view.snapshot import Member
from pando_router.fleet_view.view import FleetView
from pando_router.http.answer import Answer, ReplicaFailedError, ReplicaSilentError
from pando_router.http.upstream import Upstream
from pando_router.kept_responses.earlier import home_name
from pando_router.kept_responses.response_homes import ResponseHomes
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import Metrics
from pando_router.tenants.forwarding import Forwarding
from pando_router.tenants.tenants import Tenants

_NAMED = re.compile(rf"{STORED_PREFIX}([\w-]+)({'|'.join(STORED_METHODS)})")
_LABEL = STORED_PREFIX + "{response_id}"


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """Handles the paths that begin with STORED_PREFIX."""

    live: Live
    view: FleetView
    lifecycle: Lifecycle
    tenants: Tenants
    homes: ResponseHomes
    upstream: Upstream
    forwarding: Forwarding
    metrics: Metrics
    bodies: Bodies

    async def __call__(self, incoming: Incoming) -> None:
        request_id = request_id_of(incoming.headers)
        status = 500  # an unexpected error, which the server answers
        try:
            with self.lifecycle:
                status = await self._pass_on(incoming, request_id)
        except ApiError as error:
            status = error.status
            if incoming.started:  # then the server cuts the unfinished answer
                raise
            await incoming.send(*error_answer(error, request_id))
        except ClientDisconnectedError:
            status = CLIENT_CLOSED_REQUEST
            self.metrics.disconnects.inc()
            raise
        finally:
            self.metrics.requests[_LABEL, status].inc()

    async def _pass_on(self, incoming: Incoming, request_id: str) -> int:
        """Forwards the request; returns the answer's status. Raises ApiError,
        ClientDisconnectedError."""
        if self.lifecycle.requests - self.bodies.arriving > self.live.settings.max_requests:
            raise unavailable("this router is at its limit of concurrent requests", "overloaded")
        tenant = self.tenants.of(incoming.headers)
        body = await incoming.body(
            self.live.settings.max_body_bytes, self.bodies, client=tenant.name or None
        )
        member = await self._home(home_name(tenant, _name_in(incoming)))
        headers = self.forwarding(
            incoming.headers,
            request_id,
            tenant,
            member.beat.url,
            connection=incoming.connection_header,
        )
        with incoming.until_gone:
            try:
                answer = await self.upstream.request(
                    incoming.method.encode(), member.beat.url, incoming.target, headers, body
                )
            except (ReplicaFailedError, ReplicaSilentError) as error:
                raise _lost(member, error) from error
            try:
                return await _relay(incoming, answer, member, request_id)
            finally:
                answer.close()

    async def _home(self, name: str) -> Member:
        """The replica that keeps the response. Raises ApiError 404 if unknown or gone."""
        within_s = self.live.settings.placement_timeout
        try:
            for pool, members in self.view.fleet.pools.items():
                home = await self.homes.find(pool, name, within_s)
                for member in members:
                    if member.beat.incarnation == home:
                        return member
        except FleetUnavailable as error:
            message = "redis is away, so the response's replica cannot be found"
            raise unavailable(message, "redis_away") from error
        raise ApiError(404, "no replica keeps this response", param="response_id")


def _name_in(incoming: Incoming) -> str:
    """The response's id. Raises ApiError: 404 for another path, 405 for another method."""
    found = _NAMED.fullmatch(incoming.path)
    if found is None:
        raise ApiError(404, f"Not Found: {incoming.method} {incoming.path}")
    methods = STORED_METHODS[found[2]]
    if incoming.method not in methods:
        allowed = ", ".join(methods)
        raise ApiError(
            405,
            f"{incoming.method} is not allowed for this path, use {allowed}",
            headers={"allow": allowed},
        )
    return found[1]


async def _relay(incoming: Incoming, answer: Answer, member: Member, request_id: str) -> int:
    headers = answer.headers()
    headers += (
        (b"x-request-id", request_id.encode()),
        (b"x-pando-replica", member.beat.replica.encode()),
    )
    incoming.start(answer.status, headers, answer.length)
    chunk = answer.first_chunk
    try:
        while not answer.complete:
            if not incoming.write(chunk):
                await incoming.writable()
            chunk = await answer.read()
    except (ReplicaFailedError, ReplicaSilentError) as error:
        raise _lost(member, error) from error
    incoming.end(chunk)
    return answer.status


def _lost(member: Member, error: Exception) -> ApiError:
    return ApiError(
        502, f"replica {member.beat.replica!r} {error}", kind="upstream_error", code="replica_lost"
    )
