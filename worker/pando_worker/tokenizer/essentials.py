"""The parts of a model's tokenizer that a start needs, kept in the user's cache.

transformers takes a second to import and to build a tokenizer from its files. So its result is
saved, and later starts read it with the `tokenizers` library alone. transformers renders the chat
templates itself, later.
"""

import hashlib
import logging
from importlib.metadata import version
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from pando_worker.tokenizer.loading import load_tokenizer
from pando_worker.user_cache import cache_directory, forget_oldest, write_whole

log = logging.getLogger("pando.worker.models")

KEPT = 16  # tokenizers of a few megabytes each; the oldest are removed
_LIBRARIES = ("transformers", "tokenizers")
# All files that transformers reads for a tokenizer; config.json names its class.
_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "additional_chat_templates/*")


class Essentials(msgspec.Struct, frozen=True):
    """
    Attributes:
        state: JSON, as the `tokenizers` library writes it
        chat_template: its source, or sources by name; None without a template
    """

    state: str
    eos_token_id: int | None
    chat_template: str | dict[str, str] | None

    def backend(self) -> Tokenizer:
        return Tokenizer.from_str(self.state)


def load_essentials(model_dir: Path) -> Essentials:
    """Raises BrokenCheckpoint or UnsupportedModel, like `load_tokenizer`."""
    try:
        path = cache_directory("tokenizers") / f"{_identity(model_dir)}.json"
        return msgspec.json.decode(path.read_bytes(), type=Essentials)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the kept tokenizer of %s is not readable and is ignored: %s", model_dir, error)
    loaded = load_tokenizer(model_dir)
    template = loaded.chat_template
    found = Essentials(loaded.backend_tokenizer.to_str(), loaded.eos_token_id, template)
    try:
        path = cache_directory("tokenizers") / f"{_identity(model_dir)}.json"
        write_whole(path, msgspec.json.encode(found))
        forget_oldest(path.parent, "*.json", KEPT)
    except OSError as error:
        log.info("the tokenizer cannot be kept for the next start: %s", error)
    return found


def _identity(model_dir: Path) -> str:
    """A digest of the directory's files and of the libraries that read them. Raises OSError."""
    digest = hashlib.sha256(" ".join(map(version, _LIBRARIES)).encode())
    for path in sorted({path for pattern in _FILES for path in model_dir.glob(pattern)}):
        stat = path.stat()
        digest.update(f"\n{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
