"""How many bytes a prompt token has here; routers estimate prompts' tokens from their bytes."""

_MEMORY_TOKENS = 100_000  # what a prompt this long ago says counts 1/e of what a new one says
_START = 4.0  # English text with a common vocabulary, until prompts say otherwise


class PromptMeter:
    """Bytes per token of the text prompts seen lately, weighted by their tokens."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._bytes = 0.0

    @property
    def bytes_per_token(self) -> float:
        return self._bytes / self._tokens if self._bytes else _START

    def observe(self, num_bytes: int, tokens: int) -> None:
        keep = max(0.0, 1.0 - tokens / _MEMORY_TOKENS)
        self._tokens = self._tokens * keep + tokens
        self._bytes = self._bytes * keep + num_bytes
