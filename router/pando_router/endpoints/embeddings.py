"""OpenAI's embeddings, and classification, whose requests have the same form.

vLLM accepts conversations for both, too.
"""

from typing import Any

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import chat_bytes
from pando_router.endpoints.endpoint import MODEL, Endpoint
from pando_router.errors import bad_request
from pando_router.requests.fields import canonical
from pando_router.requests.hints import Asker
from pando_router.requests.plain import prompted
from pando_router.requests.request import Request


class InputsBody(Asker, gc=False, kw_only=True):
    model: str | None = None
    input: Any = None
    text: Any = None  # SGLang's field for /classify
    input_ids: Any = None
    messages: list[Any] | None = None


def _embeddings(fields: InputsBody) -> Request:
    if fields.model is None:
        raise bad_request("model is required", "model")
    return _read(fields, ("input",))


def _classify(fields: InputsBody) -> Request:
    return _read(fields, ("input", "text", "input_ids"))


def _read(fields: InputsBody, names: tuple[str, ...]) -> Request:
    for name in names:
        if (value := getattr(fields, name)) is not None:
            return prompted(fields.computes(fields.model), value, name)
    if fields.messages is not None:
        images: list[PrefixImage] = []
        prefix = canonical("messages", chat_bytes, fields.messages, b"", images)
        return fields.computes(fields.model, prefix=prefix, images=images)
    others = "".join(f" (or {name})" for name in (*names[1:], "messages"))
    raise bad_request(f"{names[0]} is required{others}", names[0])


_EXAMPLE = {"model": MODEL, "input": "What is a tree?"}

EMBEDDINGS = Endpoint(
    paths=("/v1/embeddings",),
    api="OpenAI, vLLM",
    placed_by="the first `input`, or `messages`",
    body=InputsBody,
    read=_embeddings,
    example=_EXAMPLE,
)

CLASSIFY = Endpoint(
    paths=("/v1/classify", "/classify"),
    api="vLLM, SGLang",
    placed_by="the first `input` (`text`, `input_ids`), or `messages`",
    body=InputsBody,
    read=_classify,
    example=_EXAMPLE,
)
