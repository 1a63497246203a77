"""The tables of what a setting chooses among, each between `<!-- NAME -->` and `<!-- end -->`.

A registry (`pando_fleet.choices`) has the names and the help; the tables list its entries.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pando_router.policies import POLICIES
from pando_sim.policies import POLICIES as SIMULATED
from pando_sim.scaling import SCALERS
from pando_worker.parsers.registry import TOOL_FORMATS

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True, slots=True)
class Table:
    page: str
    name: str  # of its marker
    rows: Sequence[Sequence[str]]  # the first is the head

    def text(self) -> str:
        head, *rows = [f"| {' | '.join(row)} |\n" for row in self.rows]
        return head + "|---" * len(self.rows[0]) + "|\n" + "".join(rows)


TABLES = (
    Table(
        "routing.md",
        "policies",
        [
            ("`policy`", "a request goes to"),
            *((f"`{one.name}`", one.help) for one in POLICIES.values()),
        ],
    ),
    Table(
        "api.md",
        "tool formats",
        [
            ("`tool_call_parser`", "form", "found by itself in templates of"),
            *(
                (f"`{one.name}`", one.help.replace("|", r"\|"), one.models)
                for one in TOOL_FORMATS.values()
            ),
        ],
    ),
    Table(
        "simulator.md",
        "policies",
        [
            ("`--policy`", "project", "a request goes to", "source"),
            *(
                (f"`{name}`", one.whose, one.help, one.source)
                for name, one in SIMULATED.items()
                if name not in POLICIES
            ),
        ],
    ),
    Table(
        "simulator.md",
        "scalings",
        [
            ("`--scaling`", "what it follows"),
            *((f"`{one.name}`", one.help) for one in SCALERS.values()),
        ],
    ),
)


def files() -> Iterator[tuple[Path, str]]:
    for name in dict.fromkeys(table.page for table in TABLES):
        text = (DOCS / name).read_text(encoding="utf-8")
        for table in TABLES:
            if table.page == name:
                text = _replaced(text, table)
        yield DOCS / name, text


def _replaced(page: str, table: Table) -> str:
    """Raises ValueError if the page has no place for the table, or several."""
    place = re.compile(rf"(<!-- {table.name} -->\n\n).*?(\n<!-- end -->)", re.S)
    text, found = place.subn(lambda match: match[1] + table.text() + match[2], page)
    if found != 1:
        raise ValueError(f"docs/{table.page} has {found} places for the table {table.name!r}")
    return text
