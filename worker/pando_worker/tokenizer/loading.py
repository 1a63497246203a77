"""Loads a model's tokenizer, without torch if it has a `tokenizer.json`, as almost all do."""

from pathlib import Path
from typing import Any

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel


def load_tokenizer(model_dir: Path) -> Any:
    """Transformers' tokenizer: a PreTrainedTokenizerFast or a class of the model's own.

    Raises:
        BrokenCheckpoint: it cannot be loaded.
        UnsupportedModel: it has no fast version.
    """
    # Imported here because it takes a second, and `essentials.py` rarely calls this.
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    try:
        if (model_dir / "tokenizer.json").is_file():
            return PreTrainedTokenizerFast.from_pretrained(model_dir)
        # Converts other formats, such as SentencePiece; imports torch, which takes seconds.
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model_dir)
    except Exception as error:  # a converter may raise anything
        raise BrokenCheckpoint(f"cannot load the tokenizer in {model_dir}: {error}") from error
    if not tokenizer.is_fast:
        raise UnsupportedModel(
            f"the tokenizer in {model_dir} exists in Python only; a tokenizer.json is needed"
        )
    return tokenizer
