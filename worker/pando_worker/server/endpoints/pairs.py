"""POST /rerank and /score: how well texts fit each other.

A cross-encoder, a classifier with one label, reads both texts of a pair together. Of a model that
embeds, the score is the cosine of both texts' vectors; each text is embedded once.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from msgspec import structs
from starlette.responses import Response

from pando_worker.messages import Embed, Embedded
from pando_worker.models.kinds.classifier import Classifier
from pando_worker.server.answers.scores import (
    Listed,
    Ranked,
    Score,
    ScoredDocument,
    activated,
    json_answer,
    numbers,
    unit,
    used,
)
from pando_worker.server.errors import bad_request
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.jobs.pooled import empty_text, run_pooled
from pando_worker.server.jobs.prompts import fitting, room_for
from pando_worker.server.pooling import Embeddings, NoEmbeddings
from pando_worker.server.protocol.pooled.pairs import RerankRequest, ScoreRequest
from pando_worker.server.service import Service

if TYPE_CHECKING:
    from pando_worker.server.answers.scores import Float64

Pair = tuple[str, str]
_Body = RerankRequest | ScoreRequest


@dataclass(frozen=True, slots=True)
class _PairScores:
    """
    Attributes:
        values: of each pair, in their order
        tokens, cached_tokens: of all prompts
    """

    values: list[float]
    tokens: int
    cached_tokens: int


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/rerank", response_model=None)
    @router.post("/v1/rerank", response_model=None)
    async def rerank(body: RerankRequest, request: Request) -> Response:
        texts = body.texts
        pairs = [(body.query, text) for text in texts]
        scores = await _scores(service, request, body, pairs, ("query", "documents"))
        # Of equal ones the first stays first.
        order = sorted(range(len(texts)), key=lambda index: -scores.values[index])
        shows = body.return_documents is not False
        results = [
            ScoredDocument(
                index=index,
                document={"text": texts[index]} if shows else None,
                relevance_score=scores.values[index],
            )
            for index in order[: body.top_n or None]
        ]
        answer = Ranked(
            id=f"rerank-{request.state.request_id}",
            model=body.model or service.model.name,
            usage=used(scores.tokens),
            results=results,
        )
        return json_answer(answer, scores.cached_tokens)

    @router.post("/score", response_model=None)
    @router.post("/v1/score", response_model=None)
    async def score(body: ScoreRequest, request: Request) -> Response:
        scores = await _scores(service, request, body, body.pairs, ("text_1", "text_2"))
        answer = Listed(
            id=f"score-{request.state.request_id}",
            created=int(time.time()),
            model=body.model or service.model.name,
            data=[Score(index=index, score=value) for index, value in enumerate(scores.values)],
            usage=used(scores.tokens),
        )
        return json_answer(answer, scores.cached_tokens)

    return router


async def _scores(
    service: Service, request: Request, body: _Body, pairs: Sequence[Pair], params: Pair
) -> _PairScores:
    """
    Args:
        params: the request's fields of both sides
    """
    model = service.use_model(request, body.model)
    classifier, pooling = service.model.classifier, service.model.pooling
    if classifier is not None:
        _check_is_one_label(classifier)
        wanted = Embeddings(classifier.pooling, is_normalized=False)
        like = empty_text(service, request, body, model, wanted)
        return await _by_reading_both(service, request, body, pairs, params, like, classifier)
    if isinstance(pooling, NoEmbeddings):
        raise bad_request(f"this model does not score texts: {pooling.reason}", "model")
    like = empty_text(service, request, body, model, replace(pooling, is_normalized=False))
    return await _by_cosine(service, request, body, pairs, params, like, pooling)


def _check_is_one_label(classifier: Classifier) -> None:
    if len(classifier.labels) != 1:
        raise bad_request(
            f"this model has {len(classifier.labels)} labels, and scores come of models with one:"
            " use /classify",
            "model",
        )


async def _by_reading_both(
    service: Service,
    request: Request,
    body: _Body,
    pairs: Sequence[Pair],
    params: Pair,
    like: Embed,
    classifier: Classifier,
) -> _PairScores:
    room = room_for(service, params[1], keep_last=body.truncate_prompt_tokens, output=0)
    prompts: list[Embed] = []
    for first, second in pairs:
        pair = await service.encode_pair(first, second, room)
        ids = fitting(service, pair.token_ids, room, output=0)
        prompts.append(structs.replace(like, input_ids=ids, second=pair.second))

    def scored(index: int, embedded: Embedded) -> tuple[float, int]:
        logits = numbers(embedded.vector)
        if body.use_activation is not False:
            logits = activated(logits, classifier.activation)
        return logits[0], embedded.cached_tokens

    found = await run_pooled(service, request, prompts, scored)
    return _PairScores(
        [value for value, _ in found],
        tokens=sum(len(prompt.input_ids) for prompt in prompts),
        cached_tokens=sum(cached for _, cached in found),
    )


async def _by_cosine(
    service: Service,
    request: Request,
    body: _Body,
    pairs: Sequence[Pair],
    params: Pair,
    like: Embed,
    pooling: Embeddings,
) -> _PairScores:
    texts: dict[str, str] = {}  # each once, with the field that it is in
    for pair in pairs:
        for text, param in zip(pair, params, strict=True):
            texts.setdefault(text, param)
    prompts: list[Embed] = []
    for text, param in texts.items():
        room = room_for(service, param, keep_last=body.truncate_prompt_tokens, output=0)
        [ids] = await service.encode_all([text], room)
        prompts.append(structs.replace(like, input_ids=fitting(service, ids, room, output=0)))

    def scaled(index: int, embedded: Embedded) -> "tuple[Float64, int]":
        return unit(pooling.vector(embedded.vector)), embedded.cached_tokens

    found = await run_pooled(service, request, prompts, scaled)
    vectors = {text: vector for text, (vector, _) in zip(texts, found, strict=True)}
    return _PairScores(
        [float(vectors[first] @ vectors[second]) for first, second in pairs],
        tokens=sum(len(prompt.input_ids) for prompt in prompts),
        cached_tokens=sum(cached for _, cached in found),
    )
