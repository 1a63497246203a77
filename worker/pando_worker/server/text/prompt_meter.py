"""Measures the bytes per prompt token; routers estimate a prompt's tokens from its bytes."""

_MEMORY_TOKENS = 100_000  # after this many tokens, a prompt's weight has fallen to 1/e
_START = 4.0  # English text with a common vocabulary, until prompts are measured


class PromptMeter:
    """Bytes per token of the latest text prompts, weighted by their tokens."""

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
