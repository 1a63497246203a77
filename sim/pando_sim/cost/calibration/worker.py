"""Reads what a worker reports about itself: model, machine, pool, and how much it has served."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from pando_sim.cost.calibration.client import Client
from pando_sim.cost.calibration.errors import BusyError, CalibrationError
from pando_sim.cost.schema import WorkerFacts

# The same metrics in Pando and vLLM: present requests, and prompt tokens served.
_PRESENT = (
    ("pando_worker_running_requests", "pando_worker_waiting_requests"),
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
)
_SERVED = ("pando_worker_prompt_tokens_total", "vllm:prompt_tokens_total")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The state before the first request; None if the worker does not report it."""

    model: str
    machine: str | None
    version: str | None
    date: str  # by its own clock
    context_length: int | None
    capacity_tokens: int | None
    page_size: int | None
    chunked_prefill_size: int | None
    max_running_requests: int | None

    def facts(self) -> WorkerFacts | None:
        if self.capacity_tokens is None:
            return None
        return WorkerFacts(
            capacity_tokens=self.capacity_tokens,
            context_length=self.context_length,
            page_size=self.page_size,
            chunked_prefill_size=self.chunked_prefill_size,
            max_running_requests=self.max_running_requests,
        )


async def look_at(client: Client) -> Worker:
    """Raises CalibrationError if it serves no model, answers in another format, or is a router."""
    if await _is_router(client):
        raise CalibrationError("it is a router, which has many workers: give the URL of one worker")
    listed = await client.get("/v1/models")
    if listed is None:
        raise CalibrationError("the worker has no /v1/models, so it has no OpenAI API")
    body, headers = listed
    try:
        card = json.loads(body)["data"][0]
        answer = await client.get("/server_info")
        info = json.loads(answer[0]) if answer else {}
        return _worker(card, info, headers)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise CalibrationError(f"/v1/models or /server_info is not as expected: {error}") from error


async def _is_router(client: Client) -> bool:
    """By its root, which needs no API key."""
    try:
        root = await client.get("/")
        return root is not None and json.loads(root[0])["name"] == "Pando router"
    except (CalibrationError, LookupError, ValueError, TypeError):
        return False


def _worker(card: Mapping[str, Any], info: Mapping[str, Any], headers: Mapping[str, str]) -> Worker:
    engine, settings = info.get("engine") or {}, info.get("settings") or {}
    date = parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
    return Worker(
        model=str(card["id"]),
        machine=info.get("machine"),
        version=info.get("version"),
        date=date.date().isoformat(),
        context_length=engine.get("max_request_tokens") or card.get("max_model_len"),
        capacity_tokens=engine.get("capacity_tokens"),
        page_size=engine.get("page_size"),
        chunked_prefill_size=settings.get("chunked_prefill_size"),
        max_running_requests=engine.get("max_running_requests"),
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers from /metrics; None if it has neither Pando's nor vLLM's names."""

    present: float | None  # requests, running and waiting
    prompt_tokens: float | None  # served since the worker's start


async def load_of(client: Client) -> Load:
    """Raises CalibrationError."""
    answer = await client.get("/metrics")
    if answer is None:
        return Load(None, None)
    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(answer[0].decode()):
            for sample in family.samples:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    except (ValueError, LookupError) as error:
        raise CalibrationError(f"/metrics is not as expected: {error}") from error
    present = [[values[n] for n in names] for names in _PRESENT if set(names) <= values.keys()]
    served = [values[name] for name in _SERVED if name in values]
    return Load(sum(present[0]) if present else None, served[0] if served else None)


async def check_idle(client: Client) -> None:
    """Raises BusyError if requests are running or waiting."""
    load = await load_of(client)
    if load.present:
        raise BusyError(
            f"{load.present:.0f} requests are already running or waiting at the worker; measure it"
            " while nobody else uses it"
        )
