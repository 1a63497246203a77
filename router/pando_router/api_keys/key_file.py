"""The key file: tenants with the digests of their keys, as YAML; checked whole before it is used.

A path may also name a folder, such as a mounted Kubernetes Secret: its files are read as one.
Files whose names begin with a dot are skipped, because Kubernetes uses them to swap the content.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from pando_fleet import strict_yaml
from pando_fleet.misread import UNKNOWN, misread
from pando_fleet.records.limits import Limits
from pando_router.api_keys.keyring import KeyEntry, Keyring
from pando_router.api_keys.tenant import ANY_MODEL, Tenant

MAX_BYTES = 16 << 20
"""The limit of all files together: about 100,000 keys."""

_PerMinute = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


class KeyFileError(ValueError):
    """What is wrong in a key file and where, as one line that contains no key."""


class _Key(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    expires: datetime | None = None


class _Tenant(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    keys: list[_Key]
    models: tuple[str, ...] = (ANY_MODEL,)
    requests_per_minute: _PerMinute | None = None
    tokens_per_minute: _PerMinute | None = None
    weight: Annotated[float, msgspec.Meta(ge=0.001, le=1000)] = 1.0
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    isolate: bool = False
    share: Annotated[float, msgspec.Meta(ge=0.001, le=1)] = 1.0
    admin: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tenants: dict[str, Any]  # each is read alone, so that an error names it


def read_keys(path: Path) -> Keyring:
    """Raises KeyFileError if the file cannot be read or any part of it is invalid."""
    entries: dict[bytes, KeyEntry] = {}
    tenants: dict[str, Tenant] = {}
    for file, text in _texts(path):
        try:
            content = msgspec.convert(strict_yaml.load(text), _File)
            for name, fields in content.tenants.items():
                if name in tenants:
                    raise KeyFileError(f"tenant {name!r} is also in another file")
                given = _given(name, fields)
                tenants[name] = _tenant(name, given)
                for key in given.keys:
                    _add(entries, key, tenants[name])
        except yaml.YAMLError as error:
            raise KeyFileError(f"{file}: not YAML: {strict_yaml.problem_of(error)}") from None
        except msgspec.ValidationError as error:
            raise KeyFileError(f"{file}: {misread(error).about('the file')}") from None
        except (ValueError, OverflowError) as error:  # dates raise these
            raise KeyFileError(f"{file}: {error}") from None
    return Keyring(entries, tenants)


def is_name(text: str) -> bool:
    """Whether the text is a valid tenant name."""
    return _NAME.fullmatch(text) is not None


def stamp(path: Path) -> object:
    """A value that changes whenever the files do. Raises KeyFileError if there are none."""
    try:
        stats = [(file.name, file.stat()) for file in _files(path)]
    except OSError as error:
        raise _unreadable(path, error) from None
    return [(name, stat.st_mtime_ns, stat.st_ino, stat.st_size) for name, stat in stats]


def _given(name: str, fields: object) -> _Tenant:
    try:
        return msgspec.convert(fields, _Tenant)
    except msgspec.ValidationError as error:
        known = ", ".join(_Tenant.__struct_fields__)
        found = misread(error)
        hint = f"; known are {known}" if found.problem == UNKNOWN and "." not in found.place else ""
        raise KeyFileError(f"tenant {name!r}: {found.about('it')}{hint}") from None


def _tenant(name: str, given: _Tenant) -> Tenant:
    if not is_name(name):
        raise KeyFileError(
            f"tenant {name!r}: a name has at most 64 letters, digits, dots, hyphens and underscores"
        )
    if given.share < 1 and not given.isolate:
        raise KeyFileError(
            f"tenant {name!r}: share {given.share:g} requires isolate: true, since a prefix that"
            " other tenants use, too, has no owner"
        )
    return Tenant(
        name=name,
        models=frozenset(given.models),
        limits=Limits(given.requests_per_minute or 0, given.tokens_per_minute or 0),
        weight=given.weight,
        priority=given.priority,
        isolate=given.isolate,
        share=given.share,
        secret=sha256("".join(sorted(key.sha256 for key in given.keys)).encode()).digest(),
        admin=given.admin,
    )


def _add(entries: dict[bytes, KeyEntry], key: _Key, tenant: Tenant) -> None:
    # The value is not repeated, because it may be a key by mistake.
    if not _DIGEST.fullmatch(key.sha256):
        raise KeyFileError(
            f"tenant {tenant.name!r}: sha256 must be the key's digest, 64 hexadecimal digits"
        )
    if key.expires is not None and key.expires.tzinfo is None:
        raise KeyFileError(
            f"tenant {tenant.name!r}: expires needs a time zone, such as 2030-01-31T00:00:00Z"
        )
    digest = bytes.fromhex(key.sha256)
    if digest in entries:
        raise KeyFileError(
            f"tenant {tenant.name!r}: one of its keys occurs twice, first for"
            f" {entries[digest].tenant.name!r}"
        )
    entries[digest] = KeyEntry(tenant, key.expires.timestamp() if key.expires else None)


def _texts(path: Path) -> Iterator[tuple[Path, str]]:
    left = MAX_BYTES
    try:
        files = _files(path)
        if not files:
            raise KeyFileError(f"{path}: this folder has no file")
        for file in files:
            with file.open("rb") as opened:
                content = opened.read(left + 1)
            left -= len(content)
            if left < 0:
                raise KeyFileError(f"{path}: more than {MAX_BYTES} bytes")
            yield file, content.decode()
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError:
        raise KeyFileError(f"{path}: not UTF-8") from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))


def _unreadable(path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(f"{path}: cannot be read: {error.strerror or error}")
