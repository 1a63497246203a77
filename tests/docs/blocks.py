"""The shell and Python blocks of the pages, and how each is marked.

A comment before a block says how `make test-docs` treats it; without one it must succeed:

    <!-- not run: REASON -->                   it is shown only
    <!-- run beside the next until URL -->     it starts a server; the next ones wait for its answer

Blocks of one page run in its order, in one folder. `sh` and `python` blocks are run as they stand.
Of a `console` block the lines after `$ ` are run, and must print the lines below them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = ("sh", "python", "console")

_FENCE = re.compile(r" *```(\w*)")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_SERVES = re.compile(r"<!-- run beside the next until (\S+) -->")


class MarkError(ValueError):
    """A comment before a block is no mark."""


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int  # of its first line, from 1
    language: str
    text: str
    not_run: str = ""  # the reason
    until: str = ""  # the URL of the server that it starts

    @property
    def place(self) -> str:
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page
        return f"{page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block, and what it must print; empty: anything."""

    command: str
    printed: tuple[str, ...]


def pages() -> list[Path]:
    """README, the guides and the examples' pages."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return [*found, *(ROOT / "examples").rglob("*.md"), ROOT / "fleet/README.md"]


def blocks(page: Path) -> Iterator[Block]:
    """Raises MarkError."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        if not (fence := _FENCE.match(lines[number])):
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
        if fence[1] in LANGUAGES:
            text = "\n".join(lines[number + 1 : end])
            before = next((line for line in reversed(lines[:number]) if line.strip()), "").strip()
            yield _marked(Block(page, number + 2, fence[1], text), before)
        number = end + 1


def _marked(block: Block, before: str) -> Block:
    plain = (block.page, block.line, block.language, block.text)
    if found := _NOT_RUN.fullmatch(before):
        return Block(*plain, not_run=found[1])
    if found := _SERVES.fullmatch(before):
        return Block(*plain, until=found[1])
    if before.startswith("<!--") and not before.startswith("<!-- generated"):
        raise MarkError(f"{block.place}: {before!r} is no mark")
    return block


def steps(block: Block) -> list[Step]:
    """The commands of a console block; a line that ends with a backslash goes on."""
    found: list[tuple[str, list[str]]] = []
    goes_on = False
    for line in block.text.splitlines():
        if goes_on:
            command, printed = found.pop()
            found.append((f"{command}\n{line}", printed))
        elif line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif found:
            found[-1][1].append(line)
        goes_on = line.endswith("\\") and (goes_on or line.startswith("$ "))
    return [Step(command, tuple(filter(str.strip, printed))) for command, printed in found]
