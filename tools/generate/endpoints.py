"""Writes the table of endpoints in docs/api.md, between `<!-- endpoints -->` and `<!-- end -->`."""

import re
from collections.abc import Iterator
from pathlib import Path

from pando_router.endpoints import ENDPOINTS

PAGE = Path(__file__).parents[2] / "docs/api.md"
TABLE = re.compile(r"(<!-- endpoints -->\n\n).*?(\n<!-- end -->)", re.S)


def files() -> Iterator[tuple[Path, str]]:
    rows = ["| path | form | placed by |", "|---|---|---|"]
    for endpoint in dict.fromkeys(ENDPOINTS.values()):
        paths = ", ".join(f"`{path}`" for path in endpoint.paths)
        rows.append(f"| {paths} | {endpoint.api} | {endpoint.placed_by} |")
    table = "".join(f"{row}\n" for row in rows)
    page = PAGE.read_text(encoding="utf-8")
    yield PAGE, TABLE.sub(lambda found: found[1] + table + found[2], page)
