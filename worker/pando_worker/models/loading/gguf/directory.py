"""The model directory that stands for a GGUF file: config and tokenizer as other models have them,
and links to the weights. It is written once, under the user's cache, and found again later."""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pando_worker.models.errors import BrokenCheckpoint, ModelNotFound
from pando_worker.models.loading.gguf.architectures import config_fields
from pando_worker.models.loading.gguf.header import read_header
from pando_worker.models.loading.gguf.metadata import Metadata
from pando_worker.models.loading.gguf.tokenizer import write_generation_config, write_tokenizer
from pando_worker.user_cache import cache_directory

SUFFIX = ".gguf"
_FORM = 1  # of the directory; another one, and older directories are not found again
_PART = re.compile(r"(?P<name>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def model_directory(file: Path, sampling: Mapping[str, float]) -> Path:
    """
    Args:
        file: a GGUF file, or any part of a split one
        sampling: for its generation_config.json, over what the file says

    Raises:
        ModelNotFound: a part is missing, or the cache cannot be written.
        BrokenCheckpoint, UnsupportedModel: as `read_header` and what reads its metadata.
    """
    parts = all_parts(file)
    part = _PART.fullmatch(file.name)
    name = part["name"] if part else file.stem
    identity = _identity(parts, sampling)
    try:
        directory = cache_directory("gguf", identity) / name
        if directory.is_dir():
            return directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=directory.parent))
    except OSError as error:
        raise ModelNotFound(
            f"{file} needs a folder for its configuration and tokenizer, and none can be written"
            f" ({error}); set XDG_CACHE_HOME to one that can"
        ) from error
    try:
        _write(parts, sampling, draft)
        _publish(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return directory


def only_file(folder: Path) -> Path | None:
    """The GGUF file, or the first part of the split one, of a folder; None where it has none.

    Raises:
        ModelNotFound: several.
    """
    files = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    whole = [
        path
        for path in files
        if (part := _PART.fullmatch(path.name)) is None or int(part["number"]) == 1
    ]
    if len(whole) > 1:
        names = ", ".join(path.name for path in whole)
        raise ModelNotFound(f"{folder} has several GGUF files, name one of them: {names}")
    return next(iter(whole or files), None)


def all_parts(file: Path) -> list[Path]:
    """Raises ModelNotFound where one is missing."""
    part = _PART.fullmatch(file.name)
    if part is None:
        return [file]
    count = int(part["count"])
    parts = [
        file.with_name(f"{part['name']}-{number:05}-of-{count:05}{SUFFIX}")
        for number in range(1, count + 1)
    ]
    missing = [path.name for path in parts if not path.is_file()]
    if missing or not parts:
        raise ModelNotFound(f"{file} is one of {count} parts; missing: {', '.join(missing[:5])}")
    return parts


def _write(parts: Sequence[Path], sampling: Mapping[str, float], folder: Path) -> None:
    first = read_header(parts[0])
    tensors = dict(first.tensors)
    for part in parts[1:]:
        tensors |= read_header(part).tensors
    metadata = Metadata(first, tensors)
    expected = metadata.get("split.tensors.count", int)
    if expected is not None and expected != len(tensors):
        raise BrokenCheckpoint(f"{parts[0]}: {len(tensors)} of {expected} tensors in its parts")
    (folder / "config.json").write_bytes(msgspec.json.encode(config_fields(metadata)))
    write_tokenizer(metadata, folder)
    write_generation_config(metadata, sampling, folder)
    for part in parts:
        (folder / part.name).symlink_to(part.resolve())


def _publish(draft: Path, directory: Path) -> None:
    """Another process may have been faster: its directory says the same."""
    try:
        draft.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise


def _identity(parts: Sequence[Path], sampling: Mapping[str, float]) -> str:
    digest = hashlib.sha256(f"{_FORM} {sorted(sampling.items())}\n".encode())
    for part in parts:
        try:
            stat = part.stat()
        except OSError as error:
            raise ModelNotFound(f"cannot read {part}: {error}") from error
        digest.update(f"{part.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
