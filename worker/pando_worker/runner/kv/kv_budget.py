"""`KVBudget`: how many tokens the KV pool can hold in its share of the memory."""

from dataclasses import dataclass

from pando_worker.models.errors import DoesNotFit

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowShare:
    """Determines the window layers' part of the pool."""

    cell_bytes: int  # of the window layers; part of the budget's
    ratio: float  # tokens in the window layers per token in the others
    window: int  # the widest window
    chunk_tokens: int  # most tokens of a step
    context_length: int

    def least_tokens(self, page_size: int) -> int:
        """Tokens that one request needs: its window and a step, with neither aligned to a page."""
        return self.window + self.chunk_tokens + 2 * page_size


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBudget:
    """Determines the size of the pool."""

    memory_bytes: int  # for weights and KV cache together
    weight_bytes: int
    mem_fraction_static: float  # the pool's share of the memory that weights and steps leave
    cell_bytes: int
    page_size: int
    max_total_tokens: int | None = None
    spare_pages: int = 0  # extra pages of each pool, beyond its capacity
    step_bytes: int = 0  # what the largest steps hold at once, as measured
    history_bytes: int = 0  # of what the pool leaves, for the histories of penalised requests

    def capacity(self) -> int:
        """Tokens of the pool, a multiple of the page size.

        Raises:
            DoesNotFit: there is no room for a single page.
        """
        tokens = self._pool_bytes // self.cell_bytes - self.spare_pages * self.page_size
        tokens = self._whole_pages(self._capped(tokens))
        if tokens < self.page_size:
            raise DoesNotFit(f"no room for a KV page of {self.page_size} tokens: {self}")
        return tokens

    def split(self, share: WindowShare) -> tuple[int, int]:
        """Tokens of the pool and of the window layers' own pool, if these release pages behind the
        window; multiples of the page size. Returns (0, 0) if one request might need equally many of
        both, as a separate pool would then save nothing.

        If all layers have a window, the other pages hold nothing: their numbers only identify
        prefixes. Then the ratio determines how many there are, at least as many as the longest
        request has.
        """
        full_bytes = self.cell_bytes - share.cell_bytes
        pool_bytes = self._pool_bytes - self.spare_pages * self.page_size * self.cell_bytes
        tokens = int(pool_bytes / (full_bytes + share.ratio * share.cell_bytes))
        if full_bytes == 0:
            tokens = max(tokens, share.context_length)
        tokens = self._capped(tokens)
        least = -(-share.least_tokens(self.page_size) // self.page_size) * self.page_size
        window_tokens = max(int(share.ratio * tokens), least)
        window_tokens = min(window_tokens, pool_bytes // share.cell_bytes)
        if full_bytes:
            left = pool_bytes - window_tokens * share.cell_bytes
            tokens = min(tokens, left // full_bytes)
        tokens, window_tokens = self._whole_pages(tokens), self._whole_pages(window_tokens)
        return (tokens, window_tokens) if least <= window_tokens < tokens else (0, 0)

    @property
    def _pool_bytes(self) -> int:
        left = self.memory_bytes - self.weight_bytes - self.step_bytes
        return min(int(left * self.mem_fraction_static), left - self.history_bytes)

    def _capped(self, tokens: int) -> int:
        return tokens if self.max_total_tokens is None else min(tokens, self.max_total_tokens)

    def _whole_pages(self, tokens: int) -> int:
        return tokens // self.page_size * self.page_size

    def __str__(self) -> str:
        steps = f" steps {self.step_bytes / MIB:.1f} MiB," if self.step_bytes else ""
        cap = "" if self.max_total_tokens is None else f", max_total_tokens {self.max_total_tokens}"
        return (
            f"weights {self.weight_bytes / MIB:.1f} MiB of {self.memory_bytes / MIB:.1f} MiB,"
            f"{steps} mem_fraction_static {self.mem_fraction_static} of the rest for the pool,"
            f" {self.history_bytes / MIB:.1f} MiB of it kept free for requests with penalties,"
            f" {self.cell_bytes} bytes a token{cap}"
        )
