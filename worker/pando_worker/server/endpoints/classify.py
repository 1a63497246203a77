"""POST /classify and /v1/classify: the scores of a classifier's labels, in vLLM's form. A reward
model has one label, whose score is the reward."""

import time

from fastapi import APIRouter, Request
from msgspec import structs
from starlette.responses import Response

from pando_worker.messages import Embedded
from pando_worker.models.kinds.classifier import Classifier
from pando_worker.server.answers.scores import (
    Classification,
    Listed,
    activated,
    json_answer,
    numbers,
    used,
)
from pando_worker.server.errors import bad_request
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.jobs.pooled import empty_text, input_prompts, run_pooled
from pando_worker.server.pooling import Embeddings
from pando_worker.server.protocol.pooled.classify import ClassifyRequest
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/classify", response_model=None)
    @router.post("/v1/classify", response_model=None)
    async def classify(body: ClassifyRequest, request: Request) -> Response:
        model = service.use_model(request, body.model)
        if (classifier := service.model.classifier) is None:
            raise bad_request("this model does not classify texts: it has no head for it", "model")
        wanted = Embeddings(classifier.pooling, is_normalized=False)
        like = empty_text(service, request, body, model, wanted)
        prompts = await input_prompts(service, body)
        texts = [
            structs.replace(like, input_ids=prompt.token_ids, images=prompt.images)
            for prompt in prompts
        ]
        cached: list[int] = []

        def classified(index: int, embedded: Embedded) -> Classification:
            cached.append(embedded.cached_tokens)
            logits = numbers(embedded.vector)
            return _classification(index, logits, classifier, body.use_activation)

        found = await run_pooled(service, request, texts, classified)
        answer = Listed(
            id=f"classify-{request.state.request_id}",
            created=int(time.time()),
            model=model.name,
            data=found,
            usage=used(sum(len(prompt.token_ids) for prompt in prompts)),
        )
        return json_answer(answer, sum(cached))

    return router


def _classification(
    index: int, logits: list[float], classifier: Classifier, use_activation: bool | None
) -> Classification:
    scores = logits if use_activation is False else activated(logits, classifier.activation)
    best = max(range(len(scores)), key=scores.__getitem__)
    return Classification(
        index=index, label=classifier.labels[best], probs=scores, num_classes=len(scores)
    )
