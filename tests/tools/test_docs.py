"""The documentation names only files, modules, tests and sections that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS: tuple[str, ...] = (
    "bench",
    "cli",
    "docker",
    "docs",
    "examples",
    "fleet",
    "helm",
    "operator",
    "router",
)
PARTS += ("sim", "tests", "tools", "worker")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "benchmarks").glob("*.md")),
    *sorted((ROOT / "examples").glob("**/README.md")),
    ROOT / "fleet" / "README.md",
    ROOT / "helm" / "pando" / "README.md",
]
MAPS = [init for part in PARTS for init in sorted((ROOT / part).glob("**/__init__.py"))]

QUOTED = re.compile(r"`([^`\s]+)`")
UNQUOTED = re.compile(r"(?<![\w`/.])([\w-]+/[\w./-]*\w\.(?:py|lua|md))(?![\w`])")  # in a map
PATH = re.compile(r"(?!\.\.)[\w.-]+(?:/[\w.-]+)*/?")
MODULE = re.compile(r"pando(?:_\w+)?(?:\.\w+)+")
LINK = re.compile(r"\]\(([^)#:]+)\)")


def named_in(file: Path) -> list[str]:
    """Names in backticks in a page or in a package's map; in a map also bare paths."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
        return QUOTED.findall(text) + UNQUOTED.findall(text)
    return QUOTED.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def is_path(name: str) -> bool:
    """Whether a name can only be a path of this repository."""
    if not PATH.fullmatch(name):
        return False
    ours = name.split("/")[0] in PARTS and "/" in name
    return ours or name.endswith((".py", ".lua", "/"))


@cache
def endings() -> set[str]:
    """Every end of a file's or folder's path by which it may be named."""
    found: set[str] = set()
    for path in (*ROOT.iterdir(), *(path for part in PARTS for path in (ROOT / part).rglob("*"))):
        parts = path.relative_to(ROOT).parts
        if "__pycache__" not in parts:
            whole = "/".join(parts) + ("/" if path.is_dir() else "")
            found.update(whole.split("/", n)[n] for n in range(len(parts)))
            found.add(whole.rstrip("/"))
    return found


def exists(name: str) -> bool:
    """A word in capitals stands for any name: for `policies/NAME.py` the folder must exist."""
    if re.search(r"\b[A-Z]+\.\w+$", name) and name not in endings():
        name = name.rpartition("/")[0]
    return name in endings()


def module_exists(name: str) -> bool:
    """Whether it is a module or package, or a name that one defines or imports."""
    package, *rest = name.split(".")
    place = ROOT / {"pando": "cli"}.get(package, package.removeprefix("pando_")) / package
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if not rest or not (place / f"{rest[0]}.py").is_file():
        file = place / "__init__.py"
    else:
        file = place / f"{rest.pop(0)}.py"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return file.is_file() and all(re.search(rf"\b{word}\b", text) for word in rest)


def collected_in(file: Path) -> set[str]:
    """Names at the top of a module that pytest could collect: functions and classes."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):  # TestX = XMachine.TestCase
                names.add(name)
    return names


def sections(page: Path) -> set[str]:
    """The link targets of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def where(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", [*PAGES, *MAPS], ids=where)
def test_every_path_module_and_test_that_is_named_exists(file: Path) -> None:
    missing = []
    for name in named_in(file):
        path, _, test = name.partition("::")
        if is_path(path):
            there = exists(path) and (not test or test in collected_in(ROOT / path))
        else:
            there = not MODULE.fullmatch(name) or module_exists(name)
        if not there:
            missing.append(name)
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=where)
def test_every_link_leads_to_a_file_and_a_section(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not [
        f"{target or page.name}#{section}"
        for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text)
        if section not in sections(page.parent / target if target else page)
    ]


def test_every_feature_has_one_line_with_its_test_or_is_marked_as_missing() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!feature)([^-].*?) \| (.*?) \| (.*?) \|$", text, re.M)
    assert len(rows) > 150
    assert len({feature for feature, _, _ in rows}) == len(rows)
    assert not [
        feature
        for feature, _, test in rows
        if not re.fullmatch(r"`tests/\S+::\w+`|\*not yet\*.*", test)
    ]


def test_what_the_readme_misses_in_the_simulator_its_page_misses_too() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    said = re.search(r"simulator\.md\) has (no .+?)[,.;]", readme)
    assert said is not None
    missing = page[page.index("## What it does not do") :]
    for what in said[1].split(" and "):
        assert what in missing


def test_every_word_of_the_glossary_is_there_once_with_a_file_that_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \| (`.+`) \|$", text, re.M)
    words = [word for word, _ in rows]
    assert len(rows) >= 40
    assert len(set(words)) == len(words)
    paths = [path for _, cell in rows for path in QUOTED.findall(cell)]
    assert not [path for path in paths if not (ROOT / path).exists()]
