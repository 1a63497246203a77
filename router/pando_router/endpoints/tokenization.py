"""Tokenization and detokenization: nothing is computed, so any replica of the model will do."""

import msgspec

from pando_router.endpoints.endpoint import MODEL, Endpoint
from pando_router.requests.request import Request


class TokenizationBody(msgspec.Struct, gc=False):
    model: str | None = None


def _read(fields: TokenizationBody) -> Request:
    return Request(model=fields.model, computes=False)


TOKENIZE = Endpoint(
    paths=("/tokenize",),
    api="vLLM",
    placed_by="nothing: any replica of the model",
    body=TokenizationBody,
    read=_read,
    example={"model": MODEL, "prompt": "Once upon a time"},
)

DETOKENIZE = Endpoint(
    paths=("/detokenize",),
    api="vLLM",
    placed_by="nothing: any replica of the model",
    body=TokenizationBody,
    read=_read,
    example={"model": MODEL, "tokens": [1, 2, 3]},
)
