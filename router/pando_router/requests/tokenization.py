"""/tokenize and /detokenize: they compute nothing, so any replica of the model will do."""

import msgspec

from pando_router.requests.request import Request


class TokenizationBody(msgspec.Struct, gc=False):
    model: str | None = None


_decode = msgspec.json.Decoder(TokenizationBody).decode


def tokenization(body: bytes) -> Request:
    return Request(model=_decode(body).model, computes=False)
