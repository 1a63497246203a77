"""Prompts as texts or token ids, or lists of either: the first one decides the placement."""

from typing import Any

from msgspec.structs import replace

from pando_fleet.placement.prefix import completion_bytes
from pando_router.requests.fields import canonical, is_many
from pando_router.requests.request import Request


def prompted(request: Request, prompt: Any, param: str) -> Request:
    """The request with its prompts. Raises ApiError 400 that names `param`."""
    every = prompt if is_many(prompt) else [prompt]
    encoded = [canonical(param, completion_bytes, one) for one in every]
    return replace(
        request,
        prefix=encoded[0],
        extra_bytes=sum(map(len, encoded[1:])),
        token_ids=sum(map(len, every)) if isinstance(every[0], list) else None,
    )
