"""/v1/completions, OpenAI's."""

from typing import Any

import msgspec

from pando_router.requests.fields import count, deterministic, priority, text
from pando_router.requests.hints import Hints
from pando_router.requests.plain import prompted
from pando_router.requests.request import Request


class CompletionBody(Hints, gc=False, kw_only=True):
    model: str
    prompt: Any
    max_tokens: Any = None
    n: Any = None
    best_of: Any = None


_decode = msgspec.json.Decoder(CompletionBody).decode


def completion(body: bytes) -> Request:
    fields = _decode(body)
    request = Request(
        model=fields.model,
        max_tokens=count(fields.max_tokens),
        stream=fields.stream is True,
        n=max(count(fields.n) or 1, count(fields.best_of) or 1),
        deterministic=deterministic(fields.temperature, fields.seed),
        priority=priority(fields.priority),
        user=text(fields.user) or text(fields.prompt_cache_key),
        cache_salt=text(fields.cache_salt) or "",
    )
    return prompted(request, fields.prompt, "prompt")
