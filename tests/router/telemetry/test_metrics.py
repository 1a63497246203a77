"""Exported metrics equal the documented ones, and those of the Grafana dashboard exist."""

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.router.tenants.tenants_world import ADMIN, key_file
from tests.router.world import (
    Replica,
    RouterClient,
    cached,
    chat,
    completion,
    fleet,
    serving,
    status,
)
from tools.generate.metrics import PAGE, Described, operator_metrics, router_metrics, worker_metrics

GRAFANA = Path(__file__).parents[3] / "docs" / "grafana" / "pando.json"
OWN = {"quantile", "le"}  # of histograms


async def samples(router: RouterClient) -> list[Any]:
    text = (await router.get("/metrics")).body.decode()
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def documented(name: str, by_name: dict[str, Described]) -> Described | None:
    """The metric that a sample of this name belongs to."""
    if name in by_name:
        return by_name[name]
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    found = by_name.get(base)
    return found if found and found.kind == "histogram" else None


async def test_everything_that_a_busy_router_exports_is_documented(
    valkey_url: str, tmp_path: Path
) -> None:
    by_name = {one.name: one for one in router_metrics()}
    async with (
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        serving(
            valkey_url, key=ADMIN, api_keys=key_file(tmp_path), shadow_policy="random"
        ) as router,
    ):
        await router.ready("a", "b")
        a.answer = b.answer = cached(2, 4)
        await router.post("/v1/completions", completion())
        a.answer = b.answer = status(503)
        await router.post("/v1/chat/completions", chat("hi"))
        found = await samples(router)
    wrong = []
    for sample in found:
        if sample.name.endswith("_created"):
            continue
        known = documented(sample.name, by_name)
        if known is None or set(sample.labels) - OWN != set(known.labels):
            wrong.append((sample.name, sample.labels))
    assert not wrong
    names = {documented(sample.name, by_name) for sample in found}
    assert len(names - {None}) > 25


async def test_labels_do_not_grow_with_what_clients_send(valkey_url: str) -> None:
    async with fleet(valkey_url, "a") as (router, _):
        await router.post("/v1/completions", completion())
        before = len(await samples(router))
        for number in range(20):
            await router.post(f"/no/such/{number}", {})
            await router.post("/v1/completions", completion(f"{number}", user=f"u{number}"))
            await router.post(f"/v1/completions?n={number}", completion(f"{number}"))
        assert len(await samples(router)) == before


def expressions() -> list[str]:
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    found += [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    return found


def test_every_metric_and_label_of_the_grafana_dashboard_exists() -> None:
    by_name = {one.name: one for one in (*router_metrics(), *worker_metrics(), *operator_metrics())}
    asked = expressions()
    assert len(asked) > 30
    assert all(f"pando_{part}_" in "".join(asked) for part in ("router", "worker", "operator"))
    wrong = []
    for expression in asked:
        labels: set[str] = {"instance"}  # which Prometheus adds
        for name in re.findall(r"\b(pando_\w+)", expression):
            known = documented(name, by_name)
            if known is None:
                wrong.append(f"{name} in {expression}")
            else:
                # A histogram is queried by its series, any other metric by its name.
                assert (known.kind == "histogram") == (name != known.name), name
                labels.update(known.labels, {"le"} if known.kind == "histogram" else ())
        used = re.findall(r"(\w+)(?:=~|=|!=)\"", expression)
        for group in re.findall(r"(?:by|ignoring|on) \(([^)]*)\)", expression):
            used += re.split(r",\s*", group)
        wrong += [f"label {label} in {expression}" for label in used if label not in labels]
    assert not wrong


def test_the_grafana_dashboard_asks_the_data_source_that_is_picked() -> None:
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in panels]
    assert len(set(places)) == len(places)


def test_every_metric_that_a_page_names_exists() -> None:
    every = {one.name: one for one in (*router_metrics(), *worker_metrics(), *operator_metrics())}
    pages = [*PAGE.parent.glob("*.md"), PAGE.parents[1] / "README.md"]
    named = {
        (name, page.name)
        for page in pages
        for name in re.findall(r"\bpando_(?:router|worker|operator)_\w+", page.read_text("utf-8"))
    }
    assert len(named) > 100
    assert not [one for one in named if documented(one[0], every) is None]
