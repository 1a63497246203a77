"""Prompts as texts or token ids, or lists of either: the first one decides the placement."""

from typing import Any

from msgspec.structs import replace

from pando_fleet.placement.prefix import completion_bytes
from pando_router.requests.fields import canonical, is_many
from pando_router.requests.request import Request


def prompted(request: Request, prompt: Any, param: str) -> Request:
    """The request with its prompts. Raises ApiError 400 that names `param`."""
    if not is_many(prompt):
        prefix, extra, every = canonical(param, completion_bytes, prompt), 0, [prompt]
    else:
        prefix, extra, every = _encoded(prompt[0], param, 0), _extra_bytes(prompt, param), prompt
    return replace(
        request,
        prefix=prefix,
        extra_bytes=extra,
        token_ids=sum(map(len, every)) if isinstance(every[0], list) else None,
    )


def text_bytes(texts: list[Any]) -> int:
    """Bytes of texts in UTF-8, in a tenth of the time that one after the other would take. Raises
    TypeError if one is no text."""
    return len("".join(texts).encode())


def _encoded(prompt: Any, param: str, index: int) -> bytes:
    return canonical(f"{param}[{index}]", completion_bytes, prompt)


def _extra_bytes(prompts: list[Any], param: str) -> int:
    """Of all but the first."""
    try:
        return text_bytes(prompts[1:])
    except TypeError:
        return sum(len(_encoded(prompts[i], param, i)) for i in range(1, len(prompts)))
