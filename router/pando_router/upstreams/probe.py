"""Probes one upstream: its health, its models and its capacity."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from pando_fleet.http.server.headers import Headers
from pando_router.http.answer import ReplicaFailedError, ReplicaSilentError
from pando_router.http.upstream import Upstream
from pando_router.upstreams.engine import (
    Capacity,
    Engine,
    UnreadableError,
    read_llamacpp_props,
    read_models,
    read_sglang_info,
    read_vllm_metrics,
)

MAX_ANSWER_BYTES = 8 << 20
_AGENT = (b"user-agent", b"pando-router-probe")
_CAPACITIES = {
    "vllm": (b"/metrics", read_vllm_metrics),
    "sglang": (b"/get_server_info", read_sglang_info),
    "llamacpp": (b"/props", read_llamacpp_props),
}


class ProbeOutcome(StrEnum):
    READY = "ready"
    STARTING = "starting"  # it answers /health with 503
    FAILED = "failed"  # it answers with an error, or with something else than asked for
    GONE = "gone"  # no connection is possible
    SILENT = "silent"  # it does not answer in time


@dataclass(frozen=True, slots=True)
class Probed:
    outcome: ProbeOutcome
    why: str = ""  # if it is neither ready nor starting
    engine: Engine | None = None  # what it serves now; None if it does not report it


class Probe:
    def __init__(self, http: Upstream, url: str) -> None:
        self._http = http
        self._url = url

    async def __call__(self, headers: Headers, timeout_s: float) -> Probed:
        """Probes once, for at most `timeout_s` seconds. `headers` hold its API key."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask(headers)
        except TimeoutError:
            return Probed(ProbeOutcome.SILENT, f"no answer within {timeout_s:g} s")
        except ReplicaSilentError as error:
            return Probed(ProbeOutcome.SILENT, str(error))
        except ReplicaFailedError as error:
            return Probed(ProbeOutcome.GONE, str(error))
        except UnreadableError as error:
            return Probed(ProbeOutcome.FAILED, str(error))

    async def capacity(self, kind: str, headers: Headers, timeout_s: float) -> Capacity | None:
        """The engine's capacity; None if it does not report it."""
        if (found := _CAPACITIES.get(kind)) is None:
            return None
        path, read = found
        try:
            async with asyncio.timeout(timeout_s):
                status, body = await self._get(path, headers)
                return read(body) if status == 200 else None
        except (TimeoutError, ReplicaSilentError, ReplicaFailedError, UnreadableError):
            return None  # the probe reports its health

    async def _ask(self, headers: Headers) -> Probed:
        status, _ = await self._get(b"/health", headers)
        if status >= 500 and status != 503:  # an engine that does not know the path is healthy
            return Probed(ProbeOutcome.FAILED, f"answered {status} to /health")
        is_starting = status == 503
        status, body = await self._get(b"/v1/models", headers)
        if status == 200:
            return Probed(
                ProbeOutcome.STARTING if is_starting else ProbeOutcome.READY,
                engine=read_models(body),
            )
        if is_starting:
            return Probed(ProbeOutcome.STARTING)
        hint = "; its API key is wrong or missing" if status in (401, 403) else ""
        return Probed(ProbeOutcome.FAILED, f"answered {status} to /v1/models{hint}")

    async def _get(self, path: bytes, headers: Headers) -> tuple[int, bytes]:
        answer = await self._http.request(b"GET", self._url, path, [_AGENT, *headers])
        body = await answer.whole(MAX_ANSWER_BYTES)
        if len(body) > MAX_ANSWER_BYTES:
            raise UnreadableError(f"{path.decode()} answers more than {MAX_ANSWER_BYTES} bytes")
        return answer.status, body
