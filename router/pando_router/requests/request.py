"""A proxied request's body, parsed once: what the router must know of it, and no more."""

from math import ceil

import msgspec

from pando_fleet.placement.prefix import chunk_keys, seed


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Of fields that the router only takes a hint from, a senseless value is None: it is the
    worker's to refuse."""

    model: str | None
    computes: bool = True  # has a prompt to prefill: takes a place on the replica, and its cache
    prefix: bytes = b""  # canonical bytes of the (first) prompt
    extra_bytes: int = 0  # canonical bytes of further prompts in the same request
    token_ids: int | None = None  # exact prompt tokens, where the client sent token ids
    max_tokens: int | None = None  # the client's bound on the answer
    stream: bool = False
    n: int = 1  # choices of each prompt
    deterministic: bool = False  # greedy or seeded: the same request draws the same tokens again
    scored: bool = False  # asks for log-probabilities
    priority: int | None = None  # higher first
    user: str | None = None  # whom or what the client says that it asks for
    cache_salt: str = ""  # shares cached prefixes with equal salts only
    earlier: str | None = None  # names what one replica remembers, such as a previous response

    @property
    def prompt_bytes(self) -> int:
        """Of the canonical prompt; 0 where the request has further ones, whose tokens count too."""
        return 0 if self.extra_bytes else len(self.prefix)

    def keys(self, model: str, adapter: str = "", salt: str = "") -> bytes:
        """Packed keys of the prompt's full chunks, as `chunk_keys` makes them; `salt` is the
        tenant's."""
        return chunk_keys(self.prefix, seed(model, adapter, salt, self.cache_salt))

    def prompt_tokens(self, bytes_per_token: float) -> int:
        """Estimated from the bytes, exact where token ids were sent; 1 at least."""
        if self.token_ids is not None:
            return max(1, self.token_ids)
        return max(1, ceil((len(self.prefix) + self.extra_bytes) / bytes_per_token))

    def output_tokens(self, expected: int) -> int:
        return expected if self.max_tokens is None else min(self.max_tokens, expected)
