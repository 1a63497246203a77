"""Sends a change of adapters to every replica of a pool at once, and keeps each one's answer."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pando_fleet.http.api_key import bearer
from pando_fleet.http.server.headers import Headers
from pando_router.api_keys.tenant import Tenant
from pando_router.fleet_view.snapshot import Member
from pando_router.http.answer import ReplicaFailedError, ReplicaSilentError
from pando_router.http.headers import without
from pando_router.http.upstream import Upstream
from pando_router.tenants.forwarding import KEYS, Forwarding

MOST_AT_ONCE = 32
"""Replicas that load at the same time: each may read the same files from the same store."""

MAX_ANSWER_BYTES = 1 << 20

GATEWAY_TIMEOUT = 504
BAD_GATEWAY = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one replica answered; 502 if it could not be reached, 504 if its time was over."""

    replica: str
    status: int
    message: str


class _Detail(msgspec.Struct):
    message: str


class _Error(msgspec.Struct):
    """What of an error's body is read."""

    error: _Detail


@dataclass(frozen=True, slots=True)
class Everywhere:
    upstream: Upstream
    forwarding: Forwarding

    async def __call__(
        self,
        members: Sequence[Member],
        path: str,
        body: bytes,
        headers: Headers,
        request_id: str,
        tenant: Tenant,
        limit_s: float,
    ) -> list[Result]:
        """Posts `body` to each member. Returns one result for each within `limit_s` seconds."""
        turns = asyncio.Semaphore(MOST_AT_ONCE)

        async def change(member: Member) -> Result:
            beat = member.beat
            sent = self.forwarding(headers, request_id, tenant, beat.url)
            if beat.admin_token:
                sent = [*without(sent, KEYS, b""), bearer(beat.admin_token)]
            try:
                async with asyncio.timeout_at(ends_at), turns:
                    answer = await self.upstream.request(
                        b"POST", beat.url, path.encode(), sent, body
                    )
                    text = await answer.whole(MAX_ANSWER_BYTES)
            except TimeoutError:
                late = f"no answer within {limit_s:g} s; it may still do it"
                return Result(replica=beat.replica, status=GATEWAY_TIMEOUT, message=late)
            except ReplicaSilentError as error:
                return Result(replica=beat.replica, status=GATEWAY_TIMEOUT, message=str(error))
            except ReplicaFailedError as error:
                return Result(replica=beat.replica, status=BAD_GATEWAY, message=str(error))
            return Result(replica=beat.replica, status=answer.status, message=_said(text))

        ends_at = asyncio.get_running_loop().time() + limit_s
        return await asyncio.gather(*map(change, members))


def _said(body: bytes) -> str:
    """An answer in words: the message of an error, else its text."""
    try:
        return msgspec.json.decode(body, type=_Error).error.message
    except msgspec.MsgspecError:
        return body.decode(errors="replace").strip().strip('"')
