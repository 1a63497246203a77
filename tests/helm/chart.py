"""Renders the chart with Helm itself, for any version of Kubernetes, and reads the result."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart, _native

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/pando"

OLDEST, CURRENT = "v1.20.2", "v1.37.0"

VALUES_FILES = {
    "default": None,
    **{file.name: file for file in sorted((CHART / "ci").glob("*.yaml"))},
    **{file.name: file for file in sorted((ROOT / "examples").glob("values-*.yaml"))},
}

Manifest = dict[str, Any]


def values_of(name: str) -> Mapping[str, Any]:
    """The values of one of VALUES_FILES."""
    file = VALUES_FILES[name]
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}


@dataclass(frozen=True, slots=True)
class As:
    """A rendered release: its name and namespace, and the chart's folder."""

    name: str = "pando"
    namespace: str = "llm"
    chart: Path = CHART


PANDO = As()


@cache
def _render(values: str, kube: str, who: As) -> str:
    # Chart.render has no parameter for the version of Kubernetes, but the library below it does.
    options = {"name": who.name, "namespace": who.namespace, "kube_version": kube}
    with Chart.load(who.chart) as chart:
        return _native.call_string("helm_render", chart._raw(), values, json.dumps(options))


def render_files(values: Mapping[str, Any], kube: str = CURRENT) -> dict[str, str]:
    """Rendered texts by template path. Raises helm_python's HelmError."""
    files: dict[str, str] = json.loads(_render(json.dumps(values), kube, PANDO))
    return files


def render(values: Mapping[str, Any], kube: str = CURRENT, who: As = PANDO) -> list[Manifest]:
    """All objects of a release, including its hooks."""
    manifests: list[Manifest] = json.loads(_parsed(json.dumps(values), kube, who))
    return manifests


@cache
def _parsed(values: str, kube: str, who: As) -> str:
    """Rendered text; parsed again for each test, so that a test may change its objects."""
    files: dict[str, str] = json.loads(_render(values, kube, who))
    return json.dumps(
        [
            manifest
            for file, text in sorted(files.items())
            if not file.endswith("NOTES.txt")
            for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader)
            if manifest
        ]
    )


def one(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    found = [
        manifest
        for manifest in manifests
        if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)
    ]
    assert len(found) == 1, f"{kind} {name}: {len(found)}"
    return found[0]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Each pod or pod template, with the name of its owner."""
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["kind"] == "Pod":
            yield name, manifest
        elif "template" in manifest.get("spec", {}):
            yield name, manifest["spec"]["template"]


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def declared_pools(manifests: list[Manifest]) -> list[Manifest]:
    """The WorkerPools that the chart's hook applies."""
    (config_map,) = (
        manifest
        for manifest in of_kind(manifests, "ConfigMap")
        if manifest["metadata"]["name"].endswith("-pools")
    )
    return [yaml.safe_load(text) for text in (config_map.get("data") or {}).values()]


def settings_file(manifests: list[Manifest], component: str) -> dict[str, Any]:
    """router.yaml or operator.yaml."""
    (text,) = (
        manifest["data"][f"{component}.yaml"]
        for manifest in of_kind(manifests, "ConfigMap")
        if f"{component}.yaml" in (manifest.get("data") or {})
    )
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings
