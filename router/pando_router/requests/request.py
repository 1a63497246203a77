"""A proxied request's body, parsed once: only what the router needs to know."""

from math import ceil

import msgspec

from pando_fleet.placement.prefix import chunk_keys, seed


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Invalid values of optional fields are None here; the replica refuses them."""

    model: str | None
    computes: bool = True  # has a prompt to prefill, so it takes a place and cache on the replica
    prefix: bytes = b""  # canonical bytes of the (first) prompt
    extra_bytes: int = 0  # canonical bytes of further prompts in the same request
    token_ids: int | None = None  # exact prompt tokens, if the client sent token ids
    max_tokens: int | None = None  # the client's limit on the answer
    stream: bool = False
    n: int = 1  # choices of each prompt
    deterministic: bool = False  # greedy or seeded: a repeated request yields the same tokens
    scored: bool = False  # asks for log-probabilities
    priority: int | None = None  # higher first
    user: str | None = None  # the end user or session that the client names
    cache_salt: str = ""  # cached prefixes are shared among equal salts only
    earlier: str | None = None  # the id of a response or conversation that one replica keeps

    @property
    def prompt_bytes(self) -> int:
        """The canonical prompt's size; 0 if there are further prompts, whose tokens count too."""
        return 0 if self.extra_bytes else len(self.prefix)

    def keys(self, model: str, adapter: str = "", salt: str = "") -> bytes:
        """The packed keys of the prompt's full chunks (`chunk_keys`); `salt` is the tenant's."""
        return chunk_keys(self.prefix, seed(model, adapter, salt, self.cache_salt))

    def prompt_tokens(self, bytes_per_token: float) -> int:
        """Estimated from the bytes, or exact if token ids were sent; at least 1."""
        if self.token_ids is not None:
            return max(1, self.token_ids)
        return max(1, ceil((len(self.prefix) + self.extra_bytes) / bytes_per_token))

    def output_tokens(self, expected: int) -> int:
        return expected if self.max_tokens is None else min(self.max_tokens, expected)
