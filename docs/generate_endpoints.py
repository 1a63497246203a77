"""Fills the router's table of endpoints in api.md: python docs/generate_endpoints.py.

tests/router/test_endpoints.py fails when the page is not what this would write.
"""

import re
from pathlib import Path

from pando_router.endpoints import ENDPOINTS

PAGE = Path(__file__).with_name("api.md")
TABLE = re.compile(r"(<!-- endpoints -->\n\n).*?(\n<!-- end -->)", re.S)


def filled(page: str) -> str:
    """The page with the table as the endpoints are."""
    rows = ["| path | form | placed by |", "|---|---|---|"]
    for endpoint in dict.fromkeys(ENDPOINTS.values()):
        paths = ", ".join(f"`{path}`" for path in endpoint.paths)
        rows.append(f"| {paths} | {endpoint.api} | {endpoint.placed_by} |")
    table = "".join(f"{row}\n" for row in rows)
    return TABLE.sub(lambda found: found[1] + table + found[2], page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
