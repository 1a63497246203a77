"""POST /v1/completions, with one prompt or several, each text or token ids."""

import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType, structs

from pando_worker.messages import LogprobsWanted
from pando_worker.server.answers.answer import Answer, ChoiceResult
from pando_worker.server.answers.logprobs import completion_logprobs, echoed_logprobs, joined
from pando_worker.server.answers.openai_objects import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    Usage,
    usage_of,
)
from pando_worker.server.errors import ApiError, bad_request
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.jobs.grammars import grammar_for
from pando_worker.server.jobs.jobs import JobSpec, make_job
from pando_worker.server.languages import AskedLanguages
from pando_worker.server.protocol.completions import CompletionRequest, prompts_of
from pando_worker.server.protocol.resume import tells_tokens
from pando_worker.server.service import Service
from pando_worker.server.text.reader import Delta, ScoredToken
from pando_worker.tokenizer.detokenizer import Vocabulary


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/completions", response_model=None)
    async def completions(body: CompletionRequest, request: Request) -> Answer:
        model = service.use_model(request, body.model)
        if body.echo and service.model.source:
            raise bad_request(
                "this model's encoder reads the prompt, and its output does not go on from it:"
                " echo cannot be used",
                "echo",
                "unsupported_parameter",
            )
        spec = JobSpec(
            prompts=prompts_of(body.prompt),
            prompt_param="prompt",
            max_tokens=body.max_tokens,
            min_tokens=body.min_tokens or 0,
            samples=body.samples,
            keep_last=body.truncate_prompt_tokens,
            seed=body.seed,
            priority=body.priority or 0,
            resumed=body.resume_token_ids,
            cache_salt=body.cache_salt,
            languages=AskedLanguages(body.src_lang, body.tgt_lang),
            adapter=model.identity,
            logprobs=_logprobs_wanted(body),
            grammar=await grammar_for(service, body),
        )
        job = await make_job(service, request, body, spec)
        form = _CompletionForm(
            id=f"cmpl-{request.state.request_id}",
            model=model.name,
            created=int(time.time()),
            include_usage=body.include_usage,
            n=body.n or 1,
            vocabulary=service.model.tokenizer.vocabulary,
            logprobs=body.logprobs,
            scores_echo=not body.resume_token_ids,
            echo=_texts(service, body, job.prompts) if body.echo else None,
            tells_tokens=tells_tokens(request),
        )
        return service.answer(job, form, stream=body.stream)

    return router


def _logprobs_wanted(body: CompletionRequest) -> LogprobsWanted | None:
    if body.logprobs is not None:
        scores_prompt = body.echo and not body.resume_token_ids
        return LogprobsWanted(top=body.logprobs, prompt_start=0 if scores_prompt else None)
    ranked = body.samples > (body.n or 1)
    return LogprobsWanted() if ranked else None


def _texts(service: Service, body: CompletionRequest, encoded: list[list[int]]) -> list[str]:
    """The prompts as text, after truncation."""
    decode = service.model.tokenizer.decode
    whole = body.truncate_prompt_tokens is None
    return [
        prompt if whole and isinstance(prompt, str) else decode(ids, special_tokens=False)
        for prompt, ids in zip(prompts_of(body.prompt), encoded, strict=True)
    ]


@dataclass(slots=True, kw_only=True)
class _CompletionForm:
    repeats: ClassVar[bool] = False
    named: ClassVar[bool] = False

    id: str
    model: str
    created: int
    include_usage: bool
    n: int
    vocabulary: Vocabulary
    logprobs: int | None
    scores_echo: bool
    echo: list[str] | None  # the prompts' texts
    tells_tokens: bool
    echoed: set[int] = field(default_factory=set)  # choices that have streamed their prompt
    unsent: dict[int, list[int]] = field(default_factory=dict)  # ids whose event is not sent yet

    def whole(self, results: list[ChoiceResult]) -> Completion:
        choices: list[CompletionChoice] = []
        for _, samples in groupby(results, lambda result: result.prompt):
            for result in _best(list(samples), self.n):
                text = self._prompt_text(result) + result.text
                choices.append(self._choice(len(choices), result, text, result.scored, echo=True))
        return self._of(choices, usage_of(results))

    def events(self, delta: Delta, results: list[ChoiceResult]) -> list[object]:
        result, index = results[delta.index], delta.index
        begins = self.echo is not None and index not in self.echoed
        self.echoed.add(index)
        text = self._prompt_text(result) + delta.text if begins else delta.text
        if self.tells_tokens:
            self.unsent.setdefault(index, []).extend(delta.token_ids)
        events: list[object] = []
        if text or delta.finish or delta.scored:
            choice = self._choice(index, result, text, delta.scored, echo=begins)
            if self.tells_tokens:
                choice = structs.replace(choice, token_ids=self.unsent.pop(index))
            events.append(self._of([choice], None if self.include_usage else UNSET))
        if self.include_usage and all(result.finish for result in results):
            events.append(self._of([], usage_of(results)))
        return events

    def failure(self, error: ApiError) -> msgspec.Raw:
        return msgspec.Raw(error.body)

    def _choice(
        self, index: int, result: ChoiceResult, text: str, tokens: list[ScoredToken], *, echo: bool
    ) -> CompletionChoice:
        finish = result.finish.reason if result.finish else None
        return CompletionChoice(index, text, finish, self._scores(result, tokens, echo=echo))

    def _scores(
        self, result: ChoiceResult, tokens: list[ScoredToken], *, echo: bool
    ) -> CompletionLogprobs | None:
        if self.logprobs is None:
            return None
        prompt = self._prompt_text(result)
        scores = completion_logprobs(self.vocabulary, tokens, self.logprobs, len(prompt))
        if not echo or self.echo is None or not self.scores_echo:
            return scores
        ids, given = result.prompt_ids, result.prompt_logprobs
        return joined(echoed_logprobs(self.vocabulary, prompt, ids, given, self.logprobs), scores)

    def _prompt_text(self, result: ChoiceResult) -> str:
        return self.echo[result.prompt] if self.echo else ""

    def _of(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )


def _best(samples: list[ChoiceResult], n: int) -> list[ChoiceResult]:
    """The n samples with the highest mean log-probability, best first; all in order if n are."""
    if len(samples) == n:
        return samples
    return sorted(samples, key=_mean_logprob, reverse=True)[:n]


def _mean_logprob(result: ChoiceResult) -> float:
    scores = [token.logprob for token in result.logprobs]
    return sum(scores) / len(scores) if scores else float("-inf")
