"""WorkerPools as a table: the size of each, the size that it wants and why, its last decisions.

Texts from the cluster are shown literally, never as markup.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pando_operator.resource.tuned_on import TunedOn, tuned_on

Object = Mapping[str, Any]

_COLUMNS = ("POOL", "MODEL", "MODE", "READY", "STARTING", "DRAINING", "DESIRED", "PRESSURE", "AGE")
_ASSUMED = {
    "Ready": "True",
    "Available": "True",
    "Progressing": "False",
    "ScalingActive": "True",
    "AdaptersReady": "True",
    "ScalingLimited": "False",
    "Stalled": "False",
}
"""The normal status of each condition, which is not shown."""


def pools_view(
    pools: Sequence[Object], now: datetime, *, decisions: int, with_namespace: bool
) -> RenderableType:
    """All pools in a table; below it the details of each, with at most `decisions` decisions."""
    if not pools:
        return Text("No WorkerPools.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in _COLUMNS:
        right = column not in ("POOL", "MODEL", "MODE")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    parts: list[RenderableType] = [table]
    for pool in pools:
        name = _name(pool, with_namespace)
        table.add_row(name, *_row(pool, now))
        parts += _details(name, pool, now, decisions)
    return Group(*parts)


def _name(pool: Object, with_namespace: bool) -> Text:
    metadata = pool["metadata"]
    name = metadata["name"]
    return Text(f"{metadata.get('namespace', '')}/{name}" if with_namespace else name)


def _row(pool: Object, now: datetime) -> list[Text]:
    spec, status = pool.get("spec", {}), pool.get("status") or {}
    replicas, desired = status.get("replicas", 0), status.get("desired")
    return [
        Text(spec.get("servedModelName") or spec.get("model", "")),
        Text(spec.get("scaling", {}).get("mode", "")),
        Text(f"{status.get('readyReplicas', 0)}/{replicas}"),
        Text(str(status.get("startingReplicas", 0))),
        Text(str(status.get("drainingReplicas", 0))),
        Text("-" if desired is None else str(desired)),
        _pressure(spec, status),
        Text(_since(pool["metadata"].get("creationTimestamp"), now)),
    ]


def _pressure(spec: Object, status: Object) -> Text:
    pressure = status.get("pressure")
    target = spec.get("scaling", {}).get("target", {}).get("pressure")
    if pressure is None:
        return Text("-")
    if target is None:
        return Text(f"{pressure:.2f}")
    style = "red" if pressure > target else ""
    return Text.assemble((f"{pressure:.2f}", style), f" of {target:.2f}")


def _details(name: Text, pool: Object, now: datetime, decisions: int) -> list[RenderableType]:
    status = pool.get("status") or {}
    lines = [
        Text.assemble(
            "  ", (condition["type"], "bold"), f" {condition.get('reason', '')}", _rest(condition)
        )
        for condition in status.get("conditions") or ()
        if condition.get("status") != _ASSUMED.get(condition["type"], "False")
    ]
    if tuned := tuned_on(pool["metadata"].get("annotations") or {}):
        lines.append(Text.assemble("  ", ("tuned", "bold"), f" on {_traffic(tuned)}"))
    if reason := status.get("reason"):
        lines.append(Text.assemble("  ", ("now", "bold"), f" {reason}"))
    if (recommended := status.get("recommended")) is not None:
        lines.append(Text.assemble("  ", ("Auto would choose", "bold"), f" {recommended}"))
    lines += [
        Text.assemble("  ", ("adapter", "bold"), f" {adapter['name']} {adapter.get('state', '')}")
        for adapter in status.get("adapters") or ()
        if adapter.get("removing") or adapter.get("ready", 0) < adapter.get("replicas", 0)
    ]
    for shadow in status.get("shadows") or ():
        words = f" {shadow['name']} would choose {shadow['desired']}: {shadow['reason']}"
        lines.append(Text.assemble("  ", ("shadow", "bold"), words))
    lines += [_decision(entry, now) for entry in (status.get("decisions") or ())[:decisions]]
    return [Text(), Text(name.plain, style="bold"), *lines] if lines else []


def _traffic(tuned: TunedOn) -> str:
    hits = "" if tuned.hit_rate is None else f", {tuned.hit_rate:.0%} cached"
    return (
        f"{tuned.trace}, {tuned.date}: {tuned.requests_per_hour:,.0f} requests an hour,"
        f" {tuned.prompt_tokens:,.0f} + {tuned.output_tokens:,.0f} tokens{hits}"
    )


def _rest(condition: Object) -> str:
    message = condition.get("message")
    return f": {message}" if message else ""


def _decision(entry: Object, now: datetime) -> Text:
    change = f"{entry['fromReplicas']} -> {entry['toReplicas']}"
    limit = f" (limited by {entry['limitedBy']})" if entry.get("limitedBy") else ""
    words = f"  {change}: {entry['reason']}{limit}"
    return Text.assemble("  ", (f"{_since(entry['time'], now):>4} ago", "dim"), words)


def _since(text: str | None, now: datetime) -> str:
    """An age in one unit, like kubectl's."""
    if not text:
        return "-"
    seconds = int((now - datetime.fromisoformat(text).astimezone(UTC)).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"
