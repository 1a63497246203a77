"""Writes the chart's table of values, its schema, and its copy of the dashboard.

In helm/pando/values.yaml a line "# -- text" (and the comment lines after it) describes a value, and
"# @schema …" narrows the type that its default shows: JSON that is merged into it, or the name of
one of the definitions below. Settings of router and operator and the spec of a WorkerPool come from
their definitions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pando_operator.resource.pool import NAME
from pando_operator.settings import OperatorSettings
from pando_router.configuration.settings import RouterSettings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/pando"
VALUES = CHART / "values.yaml"
TABLE = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
CRD = CHART / "files/workerpool-crd.yaml"
DASHBOARD = CHART / "files/pando-dashboard.json"
DASHBOARD_SOURCE = ROOT / "docs/grafana/pando.json"
POD_SCHEMA = ROOT / "operator/pando_operator/resource/pod_schema.json"

ROUTER_FIXED = (
    "host",
    "port",
    "redis",
    "api_keys",
    "admin_key",
    "upstream_api_key",
    "record",
    "record_on",
    "record_days",
    "record_files",
    "record_file_bytes",
    "record_secret",
)
OPERATOR_FIXED = (
    "host",
    "port",
    "redis",
    "kubeconfig",
    "namespaces",
    "identity",
    "lease_name",
    "lease_namespace",
    "worker_image",
    "worker_image_pull_policy",
    "worker_image_pull_secrets",
    "worker_redis_secret",
    "worker_redis_secret_key",
    "worker_variables",
)
"""Settings that the chart sets itself, or for which it has its own value."""

Schema = dict[str, Any]

INTRODUCTION = """\
# Chart `pando`

<!-- Written by `make generate` from values.yaml; do not edit by hand. -->

Router, operator, Redis and worker pools in one release: [docs/install.md](../../docs/install.md)
leads through installing, upgrading and removing it. `values.schema.json` refuses values that do not
exist.
"""


@dataclass(frozen=True, slots=True)
class Value:
    """One row: a value with a description. `default` is everything below it."""

    path: tuple[str, ...]
    default: Any
    text: str


@dataclass(slots=True)
class Comment:
    text: str = ""
    schema: list[str] = field(default_factory=list)


def comment_above(lines: list[str], line: int) -> Comment:
    """The comment directly above line number `line`, counted from 0."""
    start = line
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    found, words = Comment(), list[str]()
    for text in (one.lstrip().removeprefix("#").strip() for one in lines[start:line]):
        if text.startswith("@schema "):
            found.schema.append(text.removeprefix("@schema "))
        elif text.startswith("-- "):
            words = [text.removeprefix("-- ")]
        elif words:
            words.append(text)
    found.text = " ".join(words)
    return found


class Reader:
    """Reads values.yaml with its comments."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self.rows: list[Value] = []
        self.schema = self._object(yaml.compose(text), ())

    def _object(self, node: yaml.Node | None, path: tuple[str, ...]) -> Schema:
        assert isinstance(node, yaml.MappingNode), path
        properties = {
            key.value: self._value(key, value, (*path, key.value)) for key, value in node.value
        }
        # For Helm a null value does not exist, so what templates need is required.
        required = [key for key, one in properties.items() if not self._may_be_null((*path, key))]
        return {
            "type": "object",
            "additionalProperties": False,
            "required": required,
            "properties": properties,
        }

    def _may_be_null(self, path: tuple[str, ...]) -> bool:
        """True if the default is empty, or a mapping as a whole."""
        defaults = [row.default for row in self.rows if row.path == path]
        return any(
            default in (None, "", [], {}) or isinstance(default, dict) for default in defaults
        )

    def _value(self, key: yaml.Node, node: yaml.Node, path: tuple[str, ...]) -> Schema:
        comment = comment_above(self._lines, key.start_mark.line)
        default = yaml.safe_load(yaml.serialize(node))
        if not comment.text and not (isinstance(default, dict) and default):
            raise ValueError(f"{'.'.join(path)} in values.yaml has no description")
        if comment.text:
            self.rows.append(Value(path, default, comment.text))
        if not comment.text:
            section = self._object(node, path)
            for more in comment.schema:
                section |= json.loads(more)
            return section
        return {"description": comment.text} | _schema_of(default, comment.schema)


def _schema_of(default: Any, narrowed: list[str]) -> Schema:
    if names := [one for one in narrowed if one.startswith("$")]:
        return {"$ref": f"#/definitions/{names[0][1:]}"}
    schema = _type_of(default)
    for more in narrowed:
        schema |= json.loads(more)
    return schema


def _type_of(default: Any) -> Schema:
    match default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array"}
    raise ValueError(f"the type of {default!r} needs a line '# @schema …'")


def definitions() -> Schema:
    pod = {name: closed(one) for name, one in json.loads(POD_SCHEMA.read_text()).items()}
    port = {"type": "integer", "minimum": 1, "maximum": 65535}
    own: Schema = {
        "Object": {"type": "object"},
        "Objects": _array({"type": "object"}),
        "StringMap": {"type": "object", "additionalProperties": {"type": "string"}},
        "IntOrPercent": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]+%$"},
            ]
        },
        "Port": port,
        "NodePort": {"anyOf": [port, {"type": "null"}]},
        "AccessModes": _array(
            {"enum": ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]}, minItems=1
        ),
        "PullSecrets": _array(pod["LocalObjectReference"]),
        "EnvVars": _array(pod["EnvVar"]),
        "Volumes": _array({"type": "object", "required": ["name"]}),
        "VolumeMounts": _array(pod["VolumeMount"]),
        "ResourceRequirements": pod["ResourceRequirements"],
        "Tolerations": _array(pod["Toleration"]),
        "Affinity": pod["Affinity"],
        "TopologySpreadConstraints": _array(pod["TopologySpreadConstraint"]),
        "IngressTLS": _array(
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "hosts": _array({"type": "string"}),
                    "secretName": {"type": "string"},
                },
            }
        ),
        "ExtraObjects": _array({"type": ["object", "string"]}),
        "Pools": {
            "type": "object",
            "propertyNames": {k: v for k, v in NAME.items() if k != "type"},
            "additionalProperties": pool_spec(),
        },
    }
    for one, fixed in ((RouterSettings, ROUTER_FIXED), (OperatorSettings, OPERATOR_FIXED)):
        own |= settings(one.__name__, one.model_json_schema(), fixed)
    return own


def _array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items} | more


def pool_spec() -> Schema:
    crd = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    whole = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec: Schema = closed(whole["properties"]["spec"])
    return spec


def closed(schema: Any) -> Any:
    """A structural schema of Kubernetes as JSON Schema, without additional properties."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {
        name: (
            {key: closed(one) for key, one in value.items()}
            if name == "properties"
            else closed(value)
        )
        for name, value in schema.items()
        if not name.startswith("x-kubernetes-") and name not in ("nullable", "default")
    }
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        kept["additionalProperties"] = False
    # OpenAPI 3.0 uses a boolean beside the bound.
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if kept.pop(exclusive, False):
            kept[exclusive] = kept.pop(bound)
    return {"anyOf": [kept, {"type": "null"}]} if schema.get("nullable") else kept


def settings(name: str, schema: Schema, fixed: tuple[str, ...]) -> Schema:
    """Definitions of a settings class, and of what it refers to, without its `fixed` fields."""
    parts = {part: _plain(one) for part, one in schema.pop("$defs", {}).items()}
    whole = _plain(schema)
    whole["properties"] = {key: one for key, one in whole["properties"].items() if key not in fixed}
    whole["additionalProperties"] = False
    return parts | {name: whole}


def _plain(schema: Any) -> Any:
    """Removes titles and defaults; references point to this file's definitions."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: (
            {name: _plain(one) for name, one in value.items()}
            if key == "properties"
            else str(value).replace("#/$defs/", "#/definitions/")
            if key == "$ref"
            else _plain(value)
        )
        for key, value in schema.items()
        if key not in ("title", "default", "format")
    }


def reader() -> Reader:
    return Reader(VALUES.read_text(encoding="utf-8"))


def files() -> Iterator[tuple[Path, str]]:
    yield TABLE, _render_table()
    yield SCHEMA, _render_schema()
    yield DASHBOARD, DASHBOARD_SOURCE.read_text(encoding="utf-8")


def _render_schema() -> str:
    schema: Schema = {"$schema": "http://json-schema.org/draft-07/schema#"} | reader().schema
    schema["definitions"] = definitions()
    return json.dumps(schema, indent=1) + "\n"


def _render_table() -> str:
    rows = "\n".join(_rows(reader().rows))
    return f"{INTRODUCTION}\n| value | default | what it is |\n|---|---|---|\n{rows}\n"


def _rows(values: list[Value]) -> Iterator[str]:
    for value in values:
        default = json.dumps(value.default)
        shown = f"`{default}`" if len(default) <= 60 else "see values.yaml"
        yield f"| `{'.'.join(value.path)}` | {shown} | {value.text} |"
