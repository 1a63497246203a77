"""Reranking and scoring of text pairs; the first pair decides the placement.

Rerankers take a query and documents. Scores pair `text_1` with `text_2` in vLLM, a query with items
in SGLang; each is a text or a list.
"""

from typing import Any

from pando_fleet.placement.prefix import pair_bytes
from pando_router.endpoints.endpoint import MODEL, Endpoint
from pando_router.errors import bad_request
from pando_router.requests.hints import Asker
from pando_router.requests.plain import text_bytes
from pando_router.requests.request import Request


class RerankBody(Asker, gc=False, kw_only=True):
    query: Any
    documents: list[Any]
    model: str | None = None


class ScoreBody(Asker, gc=False, kw_only=True):
    model: str | None = None
    text_1: Any = None
    text_2: Any = None
    query: Any = None
    items: Any = None
    queries: Any = None
    documents: Any = None


_SCORED = (("text_1", "text_2"), ("query", "items"), ("queries", "documents"))


def _rerank(fields: RerankBody) -> Request:
    return _paired(fields, fields.query, fields.documents, "documents")


def _score(fields: ScoreBody) -> Request:
    for first, second in _SCORED:
        one, other = getattr(fields, first), getattr(fields, second)
        if one is not None and other is not None:
            return _paired(fields, one, other, second)
    raise bad_request("text_1 and text_2 are required, or query and items", "text_1")


def _paired(fields: RerankBody | ScoreBody, first: Any, second: Any, param: str) -> Request:
    """Pairs one text with each of many, or the n-th with the n-th."""
    firsts, seconds = _texts(first), _texts(second)
    if not firsts or not seconds:
        raise bad_request(f"{param} is empty: there is no pair to score", param)
    # Only the first pair is made: 200,000 documents beside a query of 1 MiB would be 200 GB.
    prefix = pair_bytes(firsts[0], seconds[0])
    if len(firsts) == 1:
        pairs, firsts_size = len(seconds), len(seconds) * _size(firsts)
    else:
        pairs = min(len(firsts), len(seconds))
        firsts_size = _size(firsts[:pairs])
    size = firsts_size + _size(seconds[:pairs]) + pairs * _BORDER
    return fields.computes(fields.model, prefix=prefix, extra_bytes=size - len(prefix))


_BORDER = len(pair_bytes("", ""))


def _size(texts: list[Any]) -> int:
    """Of canonical bytes."""
    try:
        return text_bytes(texts)
    except TypeError:
        return sum(len(pair_bytes(text, "")) - _BORDER for text in texts)


def _texts(value: Any) -> list[Any]:
    """The texts in a field; a list of token ids is one text."""
    if not isinstance(value, list):
        return [value]
    return [value] if value and type(value[0]) is int else value


RERANK = Endpoint(
    paths=("/v1/rerank", "/rerank"),
    api="Cohere, Jina, vLLM",
    placed_by="`query` with the first of `documents`",
    body=RerankBody,
    read=_rerank,
    example={"model": MODEL, "query": "tree", "documents": ["oak", "granite"]},
)

SCORE = Endpoint(
    paths=("/v1/score", "/score"),
    api="vLLM, SGLang",
    placed_by="`text_1` with the first of `text_2`, `query` with the first of `items`",
    body=ScoreBody,
    read=_score,
    example={"model": MODEL, "text_1": "tree", "text_2": ["oak", "granite"]},
)
