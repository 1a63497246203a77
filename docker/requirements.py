"""Prints what pyproject.toml's extras need, one requirement a line, without Pando itself.

An image installs that in a layer of its own, which stays as it is when only code changes:
`python docker/requirements.py router,otel`.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = re.compile(r"pando\[([\w,]+)\]")


def needed(extra: str) -> set[str]:
    """Of this extra and those that it names, `pando[worker]`."""
    lines = set()
    for line in project["optional-dependencies"][extra]:
        own = OWN.fullmatch(line)
        lines |= {one for name in own[1].split(",") for one in needed(name)} if own else {line}
    return lines


lines = set(project["dependencies"])
for extra in sys.argv[1].split(","):
    lines |= needed(extra)
print("\n".join(sorted(lines)))
