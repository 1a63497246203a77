"""English prose from the Python standard library: docstrings, pydoc topics and the license.

`read_corpus()` gives the modules in a fixed order, so one Python build always gives one corpus. A
module holds its prose paragraphs, each once in the whole corpus, and an `Entry` for each public
object whose docstring is prose: the raw material of the chats.
"""

import ast
import importlib
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Literal

Kind = Literal["module", "class", "function", "topic"]

STDLIB = Path(sysconfig.get_paths()["stdlib"])
SKIPPED = {"site-packages", "test", "tests", "turtledemo", "pydoc_data", "idlelib", "lib2to3"}
PUBLIC_NAMES = {"posixpath": "os.path", "_collections_abc": "collections.abc", "builtins": ""}
FLAT_PACKAGES = {"asyncio", "unittest"}  # users import their names from the package itself

COMMON_WORDS = re.compile(
    r"\b(an?|and|are|as|be|by|for|from|if|in|is|it|of|or|that|the|to)\b", re.I
)
MARKUP = [
    (re.compile(r":[a-z:]+:`[~!]?([^`<]+?)(?:\s*<[^>]*>)?`"), r"\1"),  # :func:`os.walk`
    (re.compile(r"``([^`]+)``|`([^`']+)[`']"), r"\1\2"),  # ``code``, `code`, `code'
    (re.compile(r"\*\*?([\w.]+)\*\*?"), r"\1"),  # *emphasis*
    (re.compile(r" *[^.!?]*:+$"), ""),  # announces an example
]
NOT_PROSE = re.compile(r">>>|^[-*+=|#:@<\[{]|[{}|\\~]|==|::|->|https?://|XXX|TODO|\bself\b|_{3}")


@dataclass(frozen=True)
class Entry:
    """A documented public object: `name` is what users call it, `paragraphs` is its prose."""

    name: str
    kind: Kind
    paragraphs: tuple[str, ...]


@dataclass
class Module:
    """What one module says: `paragraphs` are all its prose, `entries` its public objects."""

    name: str
    paragraphs: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def add(self, name: str, kind: Kind, docstring: object) -> None:
        paragraphs = prose(docstring) if isinstance(docstring, str) else []
        self.paragraphs += paragraphs
        if paragraphs and not any(part.startswith("_") for part in name.split(".")):
            self.entries.append(Entry(name, kind, tuple(paragraphs)))


def read_corpus() -> list[Module]:
    modules = [*_extension_modules(), *_python_modules(), _topics(), _license()]
    paragraphs: set[str] = set()
    names: set[str] = set()
    for module in modules:
        module.paragraphs = [p for p in dict.fromkeys(module.paragraphs) if p not in paragraphs]
        module.entries = [entry for entry in module.entries if entry.name not in names]
        paragraphs.update(module.paragraphs)
        names.update(entry.name for entry in module.entries)
    return [module for module in modules if module.paragraphs]


def prose(text: str) -> list[str]:
    """The paragraphs of a text that read as English, each on one line, without markup."""
    found = []
    for index, block in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(text))):
        paragraph = " ".join(block.split())
        for pattern, replacement in MARKUP:
            paragraph = pattern.sub(replacement, paragraph)
        if index == 0 and re.search(r"[\w)\"']$", paragraph):
            paragraph += "."  # a summary line
        if not block.startswith(" ") and _is_english(paragraph):  # indented: an example, a table
            found.append(paragraph)
    return found


def _is_english(paragraph: str) -> bool:
    words = paragraph.split()
    letters = sum(character.isalpha() or character == " " for character in paragraph)
    return (
        3 <= len(words) <= 200
        and bool(re.match(r"[A-Z\"']", paragraph))
        and paragraph.endswith((".", "!", "?", ".)"))
        and paragraph.isascii()
        and letters >= 0.9 * len(paragraph)
        and len(COMMON_WORDS.findall(paragraph)) >= max(1, len(words) // 12)
        and not NOT_PROSE.search(paragraph)
    )


def _public(module_name: str) -> str:
    package = module_name.split(".")[0]
    return package if package in FLAT_PACKAGES else PUBLIC_NAMES.get(module_name, module_name)


def _python_modules() -> Iterator[Module]:
    for path in sorted(STDLIB.rglob("*.py")):
        parts = path.relative_to(STDLIB).with_suffix("").parts
        if not SKIPPED.intersection(parts):
            module = Module(_public(".".join(parts).removesuffix(".__init__")))
            _add_docstrings(module, ast.parse(path.read_bytes()), module.name)
            yield module


def _add_docstrings(module: Module, node: ast.AST, name: str) -> None:
    match node:
        case ast.Module():
            module.add(name, "module", ast.get_docstring(node))
        case ast.ClassDef():
            module.add(name, "class", ast.get_docstring(node))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            module.add(name, "function", ast.get_docstring(node))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _add_docstrings(module, child, f"{name}.{child.name}")


def _extension_modules() -> Iterator[Module]:
    """Modules written in C have no source here: their docstrings are read from the live objects."""
    shared = {path.name.split(".")[0] for path in (STDLIB / "lib-dynload").glob("*.so")}
    for name in sorted(shared | set(sys.builtin_module_names)):
        if "test" in name or "xx" in name:
            continue
        try:
            live = importlib.import_module(name)
        except ImportError:
            continue  # its C library is missing here, as Tk's often is
        public = _public(name).removeprefix("_")
        module = Module(name)
        module.add(public, "module", live.__doc__)
        for key, member in sorted(vars(live).items()):
            qualified = f"{public}.{key}".removeprefix(".")
            if inspect.isclass(member):
                module.add(qualified, "class", member.__doc__)
                for method, descriptor in sorted(vars(member).items()):
                    if inspect.isroutine(descriptor):
                        module.add(f"{qualified}.{method}", "function", descriptor.__doc__)
            elif inspect.isroutine(member):
                module.add(qualified, "function", member.__doc__)
        yield module


def _topics() -> Module:
    module = Module("topics")
    for _, text in sorted(topics.items()):
        title, _, body = text.strip().partition("\n")
        module.add(title.replace('"', "").lower(), "topic", body.lstrip("*\n"))
    return module


def _license() -> Module:
    return Module("license", prose((STDLIB / "LICENSE.txt").read_text()))
