"""Prints the requirements of pyproject.toml's extras, one per line, without Pando itself.

Images install them in a separate layer, which does not change when only code changes:
`python docker/requirements.py router,otel`.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = re.compile(r"pando-serve\[([\w,]+)\]")


def needed(extra: str) -> set[str]:
    """The requirements of an extra, and of those it includes, such as `pando-serve[worker]`."""
    lines = set()
    for line in project["optional-dependencies"][extra]:
        own = OWN.fullmatch(line)
        lines |= {one for name in own[1].split(",") for one in needed(name)} if own else {line}
    return lines


lines = set(project["dependencies"])
for extra in sys.argv[1].split(","):
    lines |= needed(extra)
print("\n".join(sorted(lines)))
