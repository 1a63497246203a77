"""Writes docs/configuration.md from the settings classes."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from pydantic_settings import BaseSettings

from pando.demo.settings import DemoSettings
from pando.logs import LogSettings
from pando.settings.fields import fields
from pando.tune.settings import TuneSettings
from pando.up.settings import UpSettings
from pando_operator.settings import OperatorSettings
from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings
from pando_sim.settings import SimSettings
from pando_worker.settings import WorkerSettings

PAGE = Path(__file__).parents[2] / "docs/configuration.md"

_FAILURES = "pando_router_settings_reload_failures_total"


def _fixed() -> str:
    """The names of settings that need a restart, and a sentence about them."""
    names = ", ".join(f"`{name}`" for name in sorted(needing_restart(RouterSettings)))
    return fill(
        f"in the log says why and `{_FAILURES}` counts it. So does one that changes"
        f" {names}, which need a restart.",
        100,
    )


INTRODUCTION = f"""\
# Configuration

<!-- Written by `make generate` from the settings classes; do not edit by hand. -->

Every setting has one name and is taken from the first of:

1. a flag, `--max-total-tokens 4096`; a switch is `--radix-cache` or `--no-radix-cache`;
2. an environment variable, `PANDO_WORKER_MAX_TOTAL_TOKENS=4096`;
3. the YAML file named by `--config FILE`, `max_total_tokens: 4096`;
4. its default.

Unknown flags, unknown variables with a component's prefix, unknown keys in the file, and values
that do not parse or are out of range end the command with one line on standard error and exit
code 2.

A Redis URL with a password is better given as a variable than as a flag: flags are visible to every
user of the machine. `pando up` hands it to its workers and router as a variable, and passwords in
URLs are replaced by `***` in all logs. A key that is nothing but secret has no flag: its row below
names its variable.

A router reads its file anew when it changes, within a second (also when Kubernetes swaps a
ConfigMap), and on SIGHUP. The new settings hold for new requests and connections; flags and
variables still go before the file. A file that is not right in any part changes nothing: one line
{_fixed()}

In Kubernetes, a Service named `pando-router` makes the cluster set variables such as
`PANDO_ROUTER_PORT=tcp://…` in every pod of its namespace: set `enableServiceLinks: false` there.
"""

SECTIONS: tuple[tuple[str, str, type[BaseSettings]], ...] = (
    ("pando worker", "", WorkerSettings),
    ("pando router", "", RouterSettings),
    ("pando operator", "", OperatorSettings),
    ("pando up", "", UpSettings),
    ("pando demo", "", DemoSettings),
    ("pando sim", "", SimSettings),
    ("pando tune", "", TuneSettings),
    ("Logging, for every command (not in the YAML file)", "log_", LogSettings),
)


def files() -> Iterator[tuple[Path, str]]:
    yield PAGE, "\n".join([INTRODUCTION, *(_section(*section) for section in SECTIONS)])


def _section(title: str, flag_prefix: str, settings_class: type[BaseSettings]) -> str:
    prefix = settings_class.model_config.get("env_prefix", "")
    rows = [
        f"| `{field.variable if field.is_secret else field.flag}` | {_type(field.type)}"
        f" | {field.default and f'`{field.default}`'}"
        f"{'required' if field.required else ''} | {field.limits} | {field.description} |"
        for field in fields(settings_class, flag_prefix)
    ]
    head = ["| flag | type | default | range | what it is |", "|---|---|---|---|---|"]
    return "\n".join([f"## {title}", "", f"Variables: `{prefix}…`", "", *head, *rows, ""])


def _type(text: str) -> str:
    """Splits choices, because a bar would end the table's cell."""
    if "[" not in text:
        return text.lower()
    choices, several = text[1:].split("]")
    return " ".join(f"`{choice}`" for choice in choices.split("|")) + several
