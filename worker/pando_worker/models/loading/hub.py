"""Where a model's files are: a local directory, a GGUF file, or a Hugging Face hub repository.

Both processes of a worker need it, the one for the tokenizer, the other for config and weights.
`HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN` and the hub client's other variables are honoured.
"""

import re
from pathlib import Path

from pando_worker.models.errors import ModelNotFound
from pando_worker.models.loading.gguf.directory import SUFFIX, model_directory, only_file
from pando_worker.models.loading.packaged import PACKAGED, packaged_model

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# Subfolders hold the same weights in other formats, but for sentence-transformers' parts of an
# embedding: 1_Pooling, 2_Dense, ….
IGNORED_FILES = ["[!1-9]*/*", "?[!_]*/*", "?_[!PD]*/*"]
FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]
ADAPTER_FILES = ["adapter_config.json", "adapter_model.safetensors"]


def resolve_model(name: str) -> Path:
    """The directory with the files of `name`, downloaded into the hub's cache where needed.

    Args:
        name: one of PACKAGED; a directory with config.json or with a GGUF file; a GGUF file; a hub
            repository, or one of its GGUF files (`org/name:FILE.gguf`)

    Raises:
        ModelNotFound: no such directory, and no such hub repository, or no way to get at it.
        BrokenCheckpoint, UnsupportedModel: a GGUF file that cannot be read.
    """
    if name in PACKAGED:
        return packaged_model(name)
    path = _path(name)
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        if file := only_file(path):
            return model_directory(file, {})
        raise ModelNotFound(
            f"the directory {path} has neither config.json nor a GGUF file: not a model directory"
        )
    if path.is_file() and path.suffix == SUFFIX:
        return model_directory(path, {})
    if path.is_file():
        raise ModelNotFound(f"{path} is a file, and no GGUF file ({SUFFIX})")
    hub_id, _, file_name = name.partition(":")
    if file_name.endswith(SUFFIX) and _HUB_ID.fullmatch(hub_id):
        return model_directory(_download(hub_id, [_all_parts_of(file_name)]) / file_name, {})
    if not _HUB_ID.fullmatch(name):
        raise ModelNotFound(f"there is no directory {path}, and {name!r} cannot be a hub id")
    return _download(name, FILES, IGNORED_FILES)


def resolve_adapter(name: str) -> Path:
    """The directory with the files of a LoRA adapter.

    Args:
        name: a directory, or a hub repository

    Raises:
        ModelNotFound: no such directory, and no such hub repository, or no way to get at it.
    """
    return adapter_here(name) or _download(name, ADAPTER_FILES)


def adapter_here(name: str) -> Path | None:
    """The directory of an adapter; None if only the hub can say what it is.

    Raises ModelNotFound: no such directory, and it cannot be a hub repository.
    """
    path = _path(name)
    try:
        if name and path.is_dir():
            return path
        is_there = path.exists()
    except OSError as error:
        raise ModelNotFound(f"cannot look at {name[:200]!r}: {error.strerror}") from error
    if is_there or "/" not in name or not _HUB_ID.fullmatch(name):
        raise ModelNotFound(
            f"there is no directory {path}, and {name!r} cannot be an adapter's hub id (ORG/NAME)"
        )
    return None


def _path(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ModelNotFound(f"{name!r} is in a home directory, and this user has none") from error


def _all_parts_of(file_name: str) -> str:
    """A pattern for the file, or for all parts of a split one."""
    return re.sub(r"-\d{5}-of-(\d{5})\.gguf$", r"-?????-of-\1.gguf", file_name)


def _download(hub_id: str, files: list[str], ignored: list[str] | None = None) -> Path:
    # Imported here because a local directory, the usual case at a scheduler's start, needs neither.
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(hub_id, allow_patterns=files, ignore_patterns=ignored))
    except GatedRepoError as error:
        reason = "access to it must be granted on the hub; set HF_TOKEN"
        raise ModelNotFound(f"{hub_id!r} is gated: {reason}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"there is no directory {hub_id!r} and no such hub repository (a private one needs"
            " HF_TOKEN)"
        ) from error
    except LocalEntryNotFoundError as error:
        is_offline = constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE forbids to ask the hub" if is_offline else "the hub does not answer"
        raise ModelNotFound(
            f"there is no directory {hub_id!r}, and as a hub id it is not in the local cache, and"
            f" {why}"
        ) from error
    except Exception as error:  # among them those of the HTTP library beneath the hub client
        raise ModelNotFound(
            f"there is no directory {hub_id!r}, and as a hub id it is not in the local cache and"
            f" cannot be downloaded: {str(error).partition(chr(10))[0]}"
        ) from error
