"""OpenAI's text completions."""

from typing import Any

from pando_router.endpoints.endpoint import CACHE_SALT, MODEL, Endpoint, Replay
from pando_router.endpoints.openai_events import OpenAIEvents
from pando_router.migration.form import Form
from pando_router.requests.fields import count, wanted
from pando_router.requests.hints import Hints
from pando_router.requests.plain import prompted
from pando_router.requests.request import Request


class CompletionBody(Hints, gc=False, kw_only=True):
    model: str
    prompt: Any
    max_tokens: Any = None
    n: Any = None
    logprobs: Any = None
    best_of: Any = None


def _read(fields: CompletionBody) -> Request:
    request = fields.generates(
        fields.model,
        max_tokens=count(fields.max_tokens),
        n=max(count(fields.n) or 1, count(fields.best_of) or 1),
        scored=wanted(fields.logprobs),
    )
    return prompted(request, fields.prompt, "prompt")


COMPLETIONS = Endpoint(
    paths=("/v1/completions",),
    api="OpenAI",
    placed_by="the first `prompt`",
    body=CompletionBody,
    read=_read,
    example={"model": MODEL, "prompt": "Once upon a time"},
    salts=CACHE_SALT,
    replay=Replay(("prompt",), {"max_tokens": 1}),
    migration=Form(OpenAIEvents(), ("prompt",)),
)
