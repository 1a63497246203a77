"""Replaces each `$` in the Lua files when a script is loaded.

    $FRESH_MS  $Mode.PLACE  $operation(Touch)   a constant, a word, an operation's name
    $words(MarkKind)                            a table of all its words, each true
    $types(MarkRow)                             a table from its fields to Lua's types
    $names(Touch)                               its fields, as the names of locals
    $arguments(Place)  $arguments(Touch, i)     a call's KEYS and ARGV; other ARGV from i on
    $length(Touch)                              how many ARGV those are
    $pack(LOAD)  $pack(LOAD, load)              packs a row from locals, or from a table's fields
    $reader(LOAD)                               defines unpack_load(row), which returns the fields

An unknown name is an error when the script is loaded, so loading finds a field that was renamed on
one side only.
"""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, get_type_hints

from pando_fleet.redis.layout import calls, constants, parts, rows
from pando_fleet.redis.layout.packed import Packed

_KNOWN: dict[str, Any] = {**vars(rows), **vars(calls), **vars(constants)}
_MACRO = re.compile(r"\$(\w+)(?:\.(\w+)|\(([^()]*)\))?")
_CODES = {float: "d", int: "i8", bool: "B", str: "s"}  # codes of Redis's struct library


class LayoutError(Exception):
    """A Lua file uses a name that the layout does not define."""


@cache
def source_of(call: type) -> str:
    """The script of this call. Raises LayoutError."""
    return "\n".join(map(_library, parts.SCRIPTS[call]))


def _library(part: str) -> str:
    """A function that makes its own functions if it is on demand."""
    if part not in parts.ON_DEMAND:
        return _text(part)
    text = "\n".join(map(_text, (*parts.ON_DEMAND[part], part)))
    return f"local function {part.rpartition('/')[2]}()\n{text}\nend"


def _text(part: str) -> str:
    return expand((files("pando_fleet") / "lua" / f"{part}.lua").read_text("utf-8"))


def expand(text: str) -> str:
    """Raises LayoutError."""
    return _MACRO.sub(_replacement, text)


@cache
def key_count(call: type) -> int:
    """How many of a call's fields are keys."""
    return sum(each == calls.Key for each in _hints(call).values())


def _replacement(found: re.Match[str]) -> str:
    name, word, arguments = found.groups()
    try:
        if arguments is None:
            return _literal(_KNOWN[name] if word is None else _KNOWN[name][word])
        subject, _, extra = arguments.partition(",")
        return _MACROS[name](_KNOWN[subject.strip()], extra.strip())
    except (AttributeError, KeyError, TypeError) as error:
        raise LayoutError(f"the layout does not define {found.group()}: {error!r}") from error


def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"{value!r} is not a constant")


def _operation(kind: type[calls.Operation], _: str) -> str:
    return _literal(calls.OPERATIONS[kind])


def _words(kind: type[StrEnum], _: str) -> str:
    return f"({_table(f'{each} = true' for each in kind)})"


def _types(kind: type, _: str) -> str:
    of = {str: "string", float: "number"}
    return _table(f"{name} = '{of[hint]}'" for name, hint in _hints(kind).items())


def _table(entries: Iterable[str]) -> str:
    return "{ " + ", ".join(entries) + " }"


def _names(kind: Any, _: str) -> str:
    return ", ".join(kind.fields if isinstance(kind, Packed) else _hints(kind))


def _arguments(kind: type, first: str) -> str:
    """`first` is the Lua expression for the index of the first one, '' for 1."""
    keys = key_count(kind)
    values = [f"KEYS[{number}]" for number in range(1, keys + 1)]
    for number, hint in enumerate(list(_hints(kind).values())[keys:]):
        index = f"{first} + {number}" if first else number + 1
        values.append(_argument(hint, f"ARGV[{index}]"))
    return ", ".join(values)


def _argument(hint: Any, value: str) -> str:
    if hint == calls.Now:
        return f"now_ms({value})"
    if hint == calls.Flag:
        return f"{value} == '1'"
    return f"tonumber({value})" if hint in (int, float) else value


def _length(kind: type, _: str) -> str:
    return str(len(_hints(kind)) - key_count(kind))


def _pack(row: Packed[Any], table: str) -> str:
    values = [f"{table}.{name}" if table else name for name in row.fields]
    for index, hint in enumerate(row.fields.values()):
        if hint is bool:
            values[index] = f"{values[index]} and 1 or 0"
    codes = "".join(_CODES[hint] for hint in row.fields.values())
    if row.is_versioned_in_front:
        codes, values = f"B{codes}", [str(row.version), *values]
    elif row.version:
        codes, values = f"{codes}B", [*values, str(row.version)]
    return f"struct.pack('>{codes}', {', '.join(values)})"


def _reader(row: Packed[Any], _: str) -> str:
    """A row of an unknown version is an error, because its contents are unknown."""
    codes = "".join(_CODES[hint] for hint in row.fields.values())
    at, first = ("1", ", 2") if row.is_versioned_in_front else ("-1", "")
    known = f"version ~= {row.version}" + ("" if first else " and version ~= 0")
    return f"""local function unpack_{row.name}(row)
  local version = row:byte({at})
  if {known} then
    error('{row.name}: version ' .. tostring(version) .. ', this release reads {row.version}', 0)
  end
  return struct.unpack('>{codes}', row{first})
end"""


_MACROS: dict[str, Callable[[Any, str], str]] = {
    "operation": _operation,
    "words": _words,
    "types": _types,
    "names": _names,
    "arguments": _arguments,
    "length": _length,
    "pack": _pack,
    "reader": _reader,
}
