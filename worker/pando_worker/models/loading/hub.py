"""Where a model's files are: a local directory, or a snapshot of a Hugging Face hub repository.

Both processes of a worker need it, the one for the tokenizer, the other for config and weights.
`HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN` and the hub client's other variables are honoured.
"""

import re
from pathlib import Path

from pando_worker.models.errors import ModelNotFound

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# Subfolders hold the same weights in other formats, but for what sentence-transformers writes on
# an embedding's pooling: 1_Pooling.
IGNORED_FILES = ["[!1]*/*", "1[!_]*/*", "1_[!P]*/*"]
FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]


def resolve_model(name: str) -> Path:
    """The directory with the files of `name`, downloaded into the hub's cache where needed.

    Raises:
        ModelNotFound: no such directory, and no such hub repository, or no way to get at it.
    """
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise ModelNotFound(f"{name!r} is in a home directory, and this user has none") from error
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFound(f"the directory {path} has no config.json: not a model directory")
        return path
    if not _HUB_ID.fullmatch(name):
        raise ModelNotFound(f"there is no directory {path}, and {name!r} cannot be a hub id")
    return _download(name)


def _download(hub_id: str) -> Path:
    # Imported here because a local directory, the usual case at a scheduler's start, needs neither.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES, ignore_patterns=IGNORED_FILES))
    except GatedRepoError as error:
        reason = "access to it must be granted on the hub; set HF_TOKEN"
        raise ModelNotFound(f"{hub_id!r} is gated: {reason}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"there is no directory {hub_id!r} and no such hub repository (a private one needs"
            " HF_TOKEN)"
        ) from error
    except Exception as error:  # among them those of the HTTP library beneath the hub client
        raise ModelNotFound(
            f"there is no directory {hub_id!r}, and as a hub id it is not in the local cache and"
            f" cannot be downloaded: {error}"
        ) from error
