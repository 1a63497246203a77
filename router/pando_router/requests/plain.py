"""Prompts as texts or token ids, or lists of either: the first one decides the placement."""

from typing import Any

from msgspec.structs import replace

from pando_fleet.placement.prefix import completion_bytes
from pando_router.requests.fields import canonical, is_many
from pando_router.requests.request import Request


def prompted(request: Request, prompt: Any, param: str) -> Request:
    """The request with its prompts. Raises ApiError 400 that names `param`."""
    many = is_many(prompt)
    every = prompt if many else [prompt]
    encoded = [
        canonical(f"{param}[{i}]" if many else param, completion_bytes, one)
        for i, one in enumerate(every)
    ]
    return replace(
        request,
        prefix=encoded[0],
        extra_bytes=sum(map(len, encoded[1:])),
        token_ids=sum(map(len, every)) if isinstance(every[0], list) else None,
    )
