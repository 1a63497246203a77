"""The documentation says what is: named tests and files exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def names_in(test_file: Path) -> set[str]:
    """What pytest could collect by name at the top of a module: functions and classes."""
    names = set()
    for node in ast.parse(test_file.read_text(encoding="utf-8")).body:
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


def test_every_test_named_in_the_features_page_exists() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/\S+)::(\w+)`", text)
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or name not in names_in(ROOT / file)
    ]
    assert not missing


def test_every_feature_is_shown_by_a_test_or_said_to_be_missing() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| (?!feature)[^-]", line)]
    assert len(rows) > 30
    assert not [row for row in rows if "::" not in row and "*not yet*" not in row]


def test_every_path_named_in_the_features_page_exists() -> None:
    text = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:cli|fleet|operator|router|sim|worker)/[\w/.]+)`", text)
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_what_the_readme_misses_in_the_simulator_its_page_misses_too() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    said = re.search(r"simulator\.md\) has (no .+?),", readme)
    assert said is not None
    missing = page[page.index("## What it does not do") :]
    for what in said[1].split(" and "):
        assert what in missing


def test_every_word_of_the_glossary_is_there_once_with_a_file_that_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \| `(.+?)` \|$", text, re.M)
    words = [word for word, _ in rows]
    assert len(rows) >= 40
    assert len(set(words)) == len(words)
    assert not [path for _, path in rows if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_section_leads_to_one(page: Path) -> None:
    missing = [
        f"{target or page.name}#{section}"
        for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8"))
        if section not in sections(page.parent / target if target else page)
    ]
    assert not missing


def sections(page: Path) -> set[str]:
    """The names by which the headings of a page are linked to."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = [
        f"{page.name}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not broken
