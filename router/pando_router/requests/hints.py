"""Fields that endpoints have in common, and the requests made from them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pando_fleet.images.in_prefix import PrefixImage
from pando_router.requests.fields import deterministic, name, priority, text
from pando_router.requests.request import Request


class Asker(msgspec.Struct, gc=False, kw_only=True):
    """The request's user, priority and cache namespace."""

    priority: Any = None
    user: Any = None
    cache_salt: Any = None

    def computes(
        self,
        model: str | None,
        *,
        prefix: bytes = b"",
        images: Sequence[PrefixImage] = (),
        extra_bytes: int = 0,
    ) -> Request:
        """A request that generates nothing."""
        return Request(
            model=model,
            prefix=prefix,
            images=tuple(images),
            extra_bytes=extra_bytes,
            max_tokens=0,
            priority=priority(self.priority),
            user=name(self.user),
            cache_salt=text(self.cache_salt) or "",
        )


class Hints(Asker, gc=False, kw_only=True):
    """The common fields of OpenAI's chats, completions and responses."""

    stream: Any = None
    temperature: Any = None
    seed: Any = None
    prompt_cache_key: Any = None

    def generates(
        self,
        model: str,
        *,
        prefix: bytes = b"",
        images: Sequence[PrefixImage] = (),
        max_tokens: int | None,
        n: int = 1,
        scored: bool = False,
        earlier: str | None = None,
    ) -> Request:
        return Request(
            model=model,
            prefix=prefix,
            images=tuple(images),
            max_tokens=max_tokens,
            stream=self.stream is True,
            n=n,
            deterministic=deterministic(self.temperature, self.seed),
            scored=scored,
            priority=priority(self.priority),
            user=name(self.prompt_cache_key, self.user),
            cache_salt=text(self.cache_salt) or "",
            earlier=earlier,
        )
