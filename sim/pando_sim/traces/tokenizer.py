"""A model's own tokenizer for traces with text, if 4 bytes per token are not close enough."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pando_sim.traces.errors import TraceError

_BORDER = re.compile(rb"([\xf5-\xff])")
"""Marks in canonical bytes, which UTF-8 never contains: one token each, like those of templates."""


class TextTokenizer:
    """Call it with a prompt's canonical bytes. Can be pickled."""

    def __init__(self, file: Path) -> None:
        """`file` is a model's tokenizer.json. Raises TraceError."""
        from tokenizers import Tokenizer

        try:
            text = file.read_text(encoding="utf-8")
            self._tokenizer = Tokenizer.from_str(text)
        except Exception as error:  # the library raises no narrower type
            raise TraceError(file, None, f"is not a tokenizer.json: {error}") from error
        self._first_mark = self._tokenizer.get_vocab_size()

    def __call__(self, data: bytes) -> NDArray[np.int32]:
        ids: list[int] = []
        for piece in filter(None, _BORDER.split(data)):
            if piece[0] >= 0xF5:
                ids.append(self._first_mark + piece[0] - 0xF5)
            else:
                # Except in opaque parts, a piece is text that was once a str.
                text = piece.decode("utf-8", "replace")
                ids += self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int32)
