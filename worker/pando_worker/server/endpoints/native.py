"""POST /generate in SGLang's format: text or token ids in, text and token ids out.

Several prompts, or n above 1, are answered with a list, in the order of prompt * n + i. Each event
of a stream holds the text and ids of the whole output so far, as in SGLang.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, UnsetType

from pando_worker.messages import FinishReason, LogprobsWanted, TokenLogprob
from pando_worker.server.answers.answer import Answer, ChoiceResult
from pando_worker.server.answers.logprobs import finite, token_text
from pando_worker.server.errors import ApiError, bad_request
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.images import ChatPrompt
from pando_worker.server.jobs.grammars import grammar_for
from pando_worker.server.jobs.jobs import JobSpec, make_job
from pando_worker.server.jobs.prompts import room_for
from pando_worker.server.languages import AskedLanguages
from pando_worker.server.protocol.chats.chat import ImagePart
from pando_worker.server.protocol.completions import prompts_of
from pando_worker.server.protocol.native import NativeRequest
from pando_worker.server.service import Service
from pando_worker.server.text.reader import Delta, Finish
from pando_worker.tokenizer.detokenizer import Vocabulary

Scored = tuple[float | None, int, str | None]
"""Log-probability, token id, and the token's text if requested."""


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/generate", response_model=None)
    async def generate_natively(body: NativeRequest, request: Request) -> Answer:
        model = service.use_model(request, body.model)
        sampling = body.sampling_params
        given = body.text if body.text is not None else body.input_ids
        assert given is not None
        name = body.rid or request.state.request_id
        param = "text" if body.text is not None else "input_ids"
        prompts, seen = prompts_of(given), ChatPrompt([])
        if body.image_urls:
            seen = await _with_images(service, body, prompts, param)
            prompts = [seen.token_ids]
        spec = JobSpec(
            prompts=prompts,
            images=seen.images,
            prompt_param=param,
            max_tokens=sampling.max_new_tokens,
            min_tokens=sampling.min_new_tokens,
            samples=sampling.n or 1,
            seed=sampling.seed if sampling.seed is not None else sampling.sampling_seed,
            name=name,
            priority=body.priority or 0,
            resumed=body.resume_token_ids,
            cache_salt=body.cache_salt,
            languages=AskedLanguages(body.src_lang, body.tgt_lang),
            adapter=model.identity,
            logprobs=_logprobs_wanted(body),
            grammar=await grammar_for(service, sampling),
        )
        job = await make_job(service, request, sampling, spec)
        form = _NativeForm(
            name=name,
            many=len(job.orders) > 1,
            vocabulary=service.model.tokenizer.vocabulary,
            scores=_Scores.of(body) if body.return_logprob else None,
        )
        return service.answer(job, form, stream=body.stream)

    return router


async def _with_images(
    service: Service, body: NativeRequest, prompts: list[str | list[int]], param: str
) -> ChatPrompt:
    if len(prompts) > 1:
        raise bad_request(f"image_data is for one prompt, but {param} has several", "image_data")
    room = room_for(service, param, keep_last=None, output=body.sampling_params.max_new_tokens)
    parts = [
        (f"image_data[{at}]", ImagePart(type="image_url", image_url={"url": url}))
        for at, url in enumerate(body.image_urls)
    ]
    return await service.encode_with_images(prompts[0], parts, "image_data", room)


def _logprobs_wanted(body: NativeRequest) -> LogprobsWanted | None:
    if not body.return_logprob:
        return None
    start = _first_scored(body)
    # The token at the start has none in SGLang's answer, even if others precede it.
    return LogprobsWanted(
        top=body.top_logprobs_num, prompt_start=None if start is None else start + 1
    )


def _first_scored(body: NativeRequest) -> int | None:
    """Index of the first scored prompt token; None if none is scored."""
    return None if body.logprob_start_len < 0 or body.resume_token_ids else body.logprob_start_len


class _FinishReason(msgspec.Struct, frozen=True, omit_defaults=True):
    type: FinishReason
    matched: int | str | None = None  # of type stop
    length: int | None = None  # of type length
    message: str | None = None  # of type abort


class _MetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    finish_reason: _FinishReason | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    input_token_logprobs: list[Scored] | UnsetType = UNSET
    output_token_logprobs: list[Scored] | UnsetType = UNSET
    input_top_logprobs: list[list[Scored] | None] | UnsetType = UNSET
    output_top_logprobs: list[list[Scored] | None] | UnsetType = UNSET


class _Generated(msgspec.Struct, frozen=True):
    text: str
    output_ids: list[int]
    meta_info: _MetaInfo
    index: int | UnsetType = UNSET  # in a stream of several


@dataclass(frozen=True, slots=True)
class _Scores:
    """Which log-probabilities a request asks for, and in which form."""

    start: int | None  # in the prompt
    top: int
    text: bool

    @classmethod
    def of(cls, body: NativeRequest) -> "_Scores":
        return cls(_first_scored(body), body.top_logprobs_num, body.return_text_in_logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NativeForm:
    repeats: ClassVar[bool] = True
    named: ClassVar[bool] = False

    name: str
    many: bool
    vocabulary: Vocabulary
    scores: _Scores | None

    def whole(self, results: list[ChoiceResult]) -> object:
        generated = [self._generated(result) for result in results]
        return generated if self.many else generated[0]

    def events(self, delta: Delta, results: list[ChoiceResult]) -> list[object]:
        index = delta.index if self.many else UNSET
        return [self._generated(results[delta.index], index)]

    def failure(self, error: ApiError) -> msgspec.Raw:
        return msgspec.Raw(error.body)

    def _generated(self, result: ChoiceResult, index: int | UnsetType = UNSET) -> _Generated:
        finish = result.finish
        meta = _MetaInfo(
            id=self.name,
            finish_reason=_finish_reason(finish, result) if finish else None,
            prompt_tokens=len(result.prompt_ids),
            completion_tokens=len(result.token_ids),
            cached_tokens=result.cached_tokens or 0,
        )
        if self.scores is not None:
            meta = self._with_scores(meta, self.scores, result)
        return _Generated(result.text, result.token_ids, meta, index)

    def _with_scores(self, meta: _MetaInfo, scores: _Scores, result: ChoiceResult) -> _MetaInfo:
        prompt: list[tuple[int, TokenLogprob | None]] = []
        if scores.start is not None and (ids := result.prompt_ids[scores.start :]):
            prompt = list(zip(ids, [None, *result.prompt_logprobs], strict=True))
        resumed = len(result.token_ids) - len(result.logprobs)
        output = list(zip(result.token_ids[resumed:], result.logprobs, strict=True))
        meta = msgspec.structs.replace(
            meta,
            input_token_logprobs=[self._own(id, score, scores) for id, score in prompt],
            output_token_logprobs=[self._own(id, score, scores) for id, score in output],
        )
        if not scores.top:
            return meta
        return msgspec.structs.replace(
            meta,
            input_top_logprobs=[self._top(score, scores) for _, score in prompt],
            output_top_logprobs=[self._top(score, scores) for _, score in output],
        )

    def _own(self, token_id: int, score: TokenLogprob | None, scores: _Scores) -> Scored:
        return self._scored(None if score is None else score.logprob, token_id, scores)

    def _top(self, score: TokenLogprob | None, scores: _Scores) -> list[Scored] | None:
        if score is None:
            return None
        likely = zip(score.top_logprobs[: scores.top], score.top_ids[: scores.top], strict=True)
        return [self._scored(logprob, token_id, scores) for logprob, token_id in likely]

    def _scored(self, logprob: float | None, token_id: int, scores: _Scores) -> Scored:
        text = token_text(self.vocabulary, token_id) if scores.text else None
        return None if logprob is None else finite(logprob), token_id, text


def _finish_reason(finish: Finish, result: ChoiceResult) -> _FinishReason:
    match finish.reason:
        case FinishReason.STOP:
            return _FinishReason(finish.reason, matched=finish.matched)
        case FinishReason.LENGTH:
            return _FinishReason(finish.reason, length=len(result.token_ids))
        case FinishReason.ABORT:
            return _FinishReason(finish.reason, message="aborted on request")
