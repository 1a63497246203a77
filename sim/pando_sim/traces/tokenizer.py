"""A model's own tokenizer for traces with text, where 4 bytes a token are not near enough."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pando_sim.traces.errors import TraceError

_BORDER = re.compile(rb"([\xf5-\xff])")
"""Marks of canonical bytes, which no UTF-8 contains: a token each, as those of templates."""


class TextTokenizer:
    """Called with a prompt's canonical bytes. Can be pickled."""

    def __init__(self, file: Path) -> None:
        """`file` is a model's tokenizer.json. Raises TraceError."""
        try:
            text = file.read_text(encoding="utf-8")
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise TraceError(file, None, f"is no tokenizer.json: {error}") from error
        self._first_mark = self._tokenizer.get_vocab_size()

    def __call__(self, data: bytes) -> NDArray[np.int32]:
        ids: list[int] = []
        for piece in filter(None, _BORDER.split(data)):
            if piece[0] >= 0xF5:
                ids.append(self._first_mark + piece[0] - 0xF5)
            else:
                # Opaque parts aside, a piece is text that was a str once.
                text = piece.decode("utf-8", "replace")
                ids += self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int32)
