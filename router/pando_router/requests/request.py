"""A proxied request's body, parsed once: only what the router needs to know."""

from math import ceil

import msgspec
from msgspec.structs import replace

from pando_fleet.canonical.volatile import prefix_without_volatile_line
from pando_fleet.images.in_prefix import TOKEN_BYTES, PrefixImage, counted, with_room
from pando_fleet.images.rule import ImageRule
from pando_fleet.placement.prefix import CHUNK_BYTES, MAX_CHUNKS, chunk_keys, seed

KEPT_BYTES = 64 * 1024
"""Of the prefix, while a request is answered; few are longer."""

KEYED_BYTES = CHUNK_BYTES * MAX_CHUNKS + KEPT_BYTES
"""Of the prefix, from which its keys are made, also if its volatile first line is left out."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Invalid values of optional fields are None here; the replica refuses them."""

    model: str | None
    computes: bool = True  # has a prompt to prefill, so it takes a place and cache on the replica
    prefix: bytes = b""  # canonical bytes of the (first) prompt
    images: tuple[PrefixImage, ...] = ()  # of that prompt
    cut_bytes: int = 0  # of the prefix, which a placed request keeps only the beginning of
    extra_bytes: int = 0  # canonical bytes of further prompts in the same request
    token_ids: int | None = None  # exact prompt tokens but of images, if the client sent token ids
    max_tokens: int | None = None  # the client's limit on the answer
    stream: bool = False
    n: int = 1  # choices of each prompt
    deterministic: bool = False  # greedy or seeded: a repeated request yields the same tokens
    scored: bool = False  # asks for log-probabilities
    priority: int | None = None  # smaller first
    user: str | None = None  # the session or end user that the client names
    cache_salt: str = ""  # cached prefixes are shared among equal salts only
    earlier: str | None = None  # the id of a response or conversation that one replica keeps

    @property
    def prompt_bytes(self) -> int:
        """The canonical prompt's size; 0 if it does not stand for the request's tokens: because
        there are further prompts, or images whose tokens are unknown."""
        if self.extra_bytes or (self.images and not self.image_tokens):
            return 0
        return len(self.prefix) + self.cut_bytes

    @property
    def image_tokens(self) -> int:
        """Estimated; 0 if the model's rule is unknown."""
        return sum(image.tokens for image in self.images)

    def with_image_tokens(self, rule: ImageRule) -> "Request":
        """The request, if it has images, with their tokens by the model's rule, and room for these
        in its prefix."""
        images = counted(self.images, rule)
        return replace(self, images=images, prefix=with_room(self.prefix, images))

    def without_volatile_line(self) -> tuple["Request", str] | None:
        """The request without a first line that changes with every call, and the form of that line;
        None if there is none."""
        found = prefix_without_volatile_line(self.prefix, self.images)
        if found is None:
            return None
        prefix, images, form = found
        return replace(self, prefix=prefix, images=images), form

    def with_cut_prefix(self, most: int = KEPT_BYTES) -> "Request":
        """The request once its keys are made: of a long prefix with its beginning only, so that a
        text does not take its size twice while it is answered. Before that, `most` must be at least
        KEYED_BYTES."""
        cut = max(0, len(self.prefix) - most)
        return replace(self, prefix=self.prefix[:most], cut_bytes=self.cut_bytes + cut)

    def keys(self, model: str, adapter_key: str = "", salt: str = "") -> bytes:
        """The packed keys of the prompt's full chunks (`chunk_keys`); `salt` is the tenant's."""
        return chunk_keys(self.prefix, seed(model, adapter_key, salt, self.cache_salt))

    def prompt_tokens(self, bytes_per_token: float) -> int:
        """Estimated from the bytes, or exact if token ids were sent; at least 1."""
        if self.token_ids is not None:
            return max(1, self.token_ids + self.image_tokens)
        size, seen = len(self.prefix) + self.cut_bytes + self.extra_bytes, 0
        if self.images:
            seen = self.image_tokens
            size -= TOKEN_BYTES * seen
        return max(1, seen + ceil(size / bytes_per_token))

    def output_tokens(self, expected: int) -> int:
        return expected if self.max_tokens is None else min(self.max_tokens, expected)
