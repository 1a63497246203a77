"""Parses what engines report of themselves; only what each documents.

- all: the OpenAI model list; `max_model_len` in it (vLLM, SGLang), LoRA adapters by `parent`
- vLLM: `/metrics`, `vllm:cache_config_info` and `vllm:kv_cache_usage_perc`, its KV pool and the
  share that running requests hold; `vllm:num_requests_running` and `…_waiting`;
  `vllm:lora_requests_info`, its adapter slots and the adapters that run and wait
- SGLang: `/get_server_info`, `max_total_num_tokens` and `max_running_requests`
- llama.cpp: `/props`, `total_slots` and a slot's context (it does not report whether slots share
  memory, so its total KV memory stays unknown)
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from pando_router.upstreams.adapters import NO_ADAPTERS, AdapterUse

MAX_NAMES = 1000
_SAMPLE = re.compile(
    rb"^([A-Za-z_:]+)(?:\{([^\n]*)\})? (\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class UnreadableError(ValueError):
    """An answer that does not have its path's format; the message says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Values that the engine does not report are zero or empty."""

    model: str
    adapters: tuple[str, ...]
    kind: str  # the owner in the model list, such as "vllm"
    max_request_tokens: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """Values that the engine does not report are zero."""

    capacity_tokens: int = 0
    pinned_tokens: int = 0
    max_requests: int = 0
    max_request_tokens: int = 0
    running: int = 0
    waiting: int = 0
    adapters: AdapterUse = NO_ADAPTERS


def read_models(body: bytes) -> Engine:
    """Parses the answer of /v1/models.

    The first model without a parent is the replica's own; all other names count as its adapters,
    which keeps their prefixes apart. Raises UnreadableError.
    """
    listed = _json(body).get("data")
    if not isinstance(listed, list) or not listed:
        raise UnreadableError("its model list is empty")
    cards = [card for card in listed if isinstance(card, dict) and _name(card)]
    own = next((card for card in cards if not card.get("parent")), None)
    if own is None:
        raise UnreadableError("its model list has no model without a parent")
    names = dict.fromkeys(card["id"] for card in cards[:MAX_NAMES] if card is not own)
    names.pop(own["id"], None)
    kind = own.get("owned_by")
    return Engine(
        model=own["id"],
        adapters=tuple(sorted(names)),
        kind=kind if isinstance(kind, str) else "",
        max_request_tokens=_count(own, "max_model_len"),
    )


def read_vllm_metrics(body: bytes) -> Capacity:
    """Parses the answer of /metrics; sums the engines of one server that share its port."""
    capacity = pinned = 0
    usage = {
        labels.get("engine", ""): value
        for name in (b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc")
        for labels, value in _samples(body, name)
    }
    for labels, _ in _samples(body, b"vllm:cache_config_info"):
        blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if blocks.isdigit() and size.isdigit():
            tokens = int(blocks) * int(size)
            capacity += tokens
            pinned += int(tokens * usage.get(labels.get("engine", ""), 0.0))
    running = sum(int(value) for _, value in _samples(body, b"vllm:num_requests_running"))
    waiting = sum(int(value) for _, value in _samples(body, b"vllm:num_requests_waiting"))
    return Capacity(
        capacity,
        min(pinned, capacity),
        running=running,
        waiting=waiting,
        adapters=_read_adapters(body),
    )


def _read_adapters(body: bytes) -> AdapterUse:
    """From the sample with the latest time, which is its value: older ones stay listed."""
    samples = [(at, labels) for labels, at in _samples(body, b"vllm:lora_requests_info")]
    if not samples:
        return NO_ADAPTERS
    _, latest = max(samples, key=itemgetter(0))
    slots = latest.get("max_lora", "")
    names = [
        tuple(filter(None, map(str.strip, latest.get(f"{kind}_lora_adapters", "").split(","))))
        for kind in ("running", "waiting")
    ]
    return AdapterUse(min(int(slots), MAX_NAMES) if slots.isdigit() else 0, *names)


def read_sglang_info(body: bytes) -> Capacity:
    """Parses the answer of /get_server_info. Raises UnreadableError."""
    info = _json(body)
    return Capacity(
        capacity_tokens=_count(info, "max_total_num_tokens"),
        max_requests=_count(info, "max_running_requests"),
    )


def read_llamacpp_props(body: bytes) -> Capacity:
    """Parses the answer of /props. Raises UnreadableError."""
    props = _json(body)
    slots = _count(props, "total_slots")
    settings = props.get("default_generation_settings")
    context = _count(settings, "n_ctx") if isinstance(settings, dict) else 0
    return Capacity(max_requests=slots, max_request_tokens=context)


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"its answer is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableError("its answer is not a JSON object")
    return found


def _name(card: dict[str, Any]) -> bool:
    return isinstance(card.get("id"), str) and bool(card["id"])


def _count(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    return value if type(value) is int and value > 0 else 0


def _unescape(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


def _samples(body: bytes, name: bytes) -> Iterator[tuple[dict[str, str], float]]:
    """One metric's samples in Prometheus's text format, found by name without parsing the rest."""
    start = body.find(name)
    while start >= 0:
        end = body.find(b"\n", start)
        line = body[start : end if end >= 0 else len(body)].rstrip()
        begins = start == 0 or body[start - 1 : start] == b"\n"
        if begins and (match := _SAMPLE.match(line)) and match[1] == name:
            labels = _LABEL.findall((match[2] or b"").decode("utf-8", "replace"))
            unescaped = {label: _ESCAPED.sub(_unescape, value) for label, value in labels}
            yield unescaped, float(match[3])
        start = body.find(name, start + len(name))
