"""Checks a parsed request against the model, and makes the job that runs it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from pando_worker.messages import Generate, LogprobsWanted, PromptImage
from pando_worker.server.errors import bad_request, too_long
from pando_worker.server.generation import Job
from pando_worker.server.jobs.prompts import fitting, priority_of, room_for
from pando_worker.server.jobs.sampling import sampling_params, seeds, stop_token_ids
from pando_worker.server.languages import UNASKED, AskedLanguages, no_languages
from pando_worker.server.protocol.headers.cache_salt import namespace_of
from pando_worker.server.protocol.headers.deadline import remaining_s
from pando_worker.server.protocol.resume import FIELD, check_resumed
from pando_worker.server.protocol.sampling import SamplingFields
from pando_worker.server.service import Service
from pando_worker.server.source_text import source_of
from pando_worker.server.text.reader import TextOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The parameters of a request, in any API's format, beside the common sampling fields."""

    prompts: Sequence[str | list[int]]
    prompt_param: str  # the field of the prompts, for errors
    max_tokens: int | None  # None: as many as fit
    images: tuple[PromptImage, ...] = ()  # of the only prompt
    languages: AskedLanguages = UNASKED
    min_tokens: int = 0
    samples: int = 1  # choices per prompt
    keep_last: int | None = None  # truncate_prompt_tokens
    seed: int | None = None
    adapter: bytes = b""  # the identity of the one that the request names
    name: str | None = None  # for /abort_request; by default the request id
    priority: int = 0
    cache_salt: str | None = None
    logprobs: LogprobsWanted | None = None
    grammar: str | None = None
    resumed: list[int] = field(default_factory=list)  # see resume.py
    visible_tokens: frozenset[str] = frozenset()  # special tokens to keep in the text


async def make_job(
    service: Service, request: Request, fields: SamplingFields, spec: JobSpec
) -> Job:
    """Raises ApiError 400 for a request that the model or this worker can never run, 504 for one
    whose deadline has passed."""
    _check_head(service)
    _check_counts(service, spec)
    priority = priority_of(service, request, spec.priority)
    _check_ids(service, "logit_bias", fields.logit_bias or {})
    _check_ids(service, "stop_token_ids", fields.stop_token_ids or [])
    _check_ids(service, FIELD, spec.resumed)
    output = max(spec.max_tokens or 1, 1)
    room = room_for(service, spec.prompt_param, keep_last=spec.keep_last, output=output)
    encoded = await service.encode_all(spec.prompts, room)
    source = service.model.source
    if source:
        encoded = source.read(spec.prompts, encoded, spec.languages)
    elif param := spec.languages.first:
        raise no_languages(param)
    prompts = [fitting(service, prompt, room, output=output) for prompt in encoded]
    if source and spec.logprobs and spec.logprobs.prompt_start is not None:
        raise bad_request(
            "this model's encoder reads the prompt: its tokens have no log-probabilities",
            spec.prompt_param,
            "unsupported_parameter",
        )
    begun = [source.begun(spec.languages) for _ in prompts] if source else prompts  # by the decoder
    budgets = [_budget(service, ids, spec) for ids in begun]
    check_resumed(
        spec.resumed,
        choices=spec.samples * len(prompts),
        budget=budgets[0],
    )
    deadline_s = remaining_s(request, service.settings.request_timeout_seconds)
    space = namespace_of(request, spec.cache_salt)
    orders = [
        Generate(
            rid=spec.name or request.state.request_id,
            input_ids=ids + spec.resumed,
            source=source_of(prompt) if source else None,
            num_output=len(spec.resumed),
            sampling=sampling_params(
                fields,
                service.model.generation,
                max_new_tokens=budget,
                min_new_tokens=spec.min_tokens,
                seed=seed,
            ),
            logprobs=spec.logprobs,
            grammar=spec.grammar,
            priority=priority,
            namespace=space,
            adapter=spec.adapter,
            deadline_s=deadline_s,
            images=spec.images,
        )
        for prompt, ids, budget in zip(prompts, begun, budgets, strict=True)
        for seed in seeds(spec.seed, spec.samples)
    ]
    return Job(
        prompts=prompts,
        samples=spec.samples,
        orders=orders,
        text=_text_options(service, fields, spec),
        resumed=spec.resumed,
        prompt_only=spec.max_tokens == 0,
        received=request.state.received,
        trace=request.state.trace,
    )


def _text_options(service: Service, fields: SamplingFields, spec: JobSpec) -> TextOptions:
    special = service.model.tokenizer.vocabulary.special
    if fields.skip_special_tokens:
        names = spec.visible_tokens
        special = {id: name for id, name in special.items() if name.decode() in names}
    return TextOptions(
        stop=fields.stop,
        stop_token_ids=stop_token_ids(fields, service.model.generation),
        include_stop=fields.include_stop_str_in_output,
        special_tokens=special,
        unstoppable=spec.min_tokens,
        is_whole=service.model.source is not None,
    )


def _check_head(service: Service) -> None:
    if not service.model.has_head:
        raise bad_request(
            f"{service.model.name!r} has no head: it generates nothing and supports only"
            " /v1/embeddings",
            "model",
        )


def _check_counts(service: Service, spec: JobSpec) -> None:
    limit = service.ready.max_running_requests
    if spec.samples > limit:
        raise bad_request(f"n is {spec.samples}; this worker runs {limit} requests at once", "n")
    limit = service.settings.max_queued_requests
    if (choices := spec.samples * len(spec.prompts)) > limit:
        raise bad_request(
            f"{len(spec.prompts)} prompts with n {spec.samples} are {choices} requests; this"
            f" worker queues {limit}",
            spec.prompt_param,
        )


def _check_ids(service: Service, param: str, ids: Iterable[int]) -> None:
    highest = max(ids, default=0)
    if highest >= service.model.vocab_size:
        raise bad_request(
            f"{param} has token id {highest}, which must be below the vocabulary's size"
            f" {service.model.vocab_size}",
            param,
        )


def _budget(service: Service, prompt: list[int], spec: JobSpec) -> int:
    """The most tokens to generate; at least 1, since the scheduler generates one in any case."""
    remaining = service.context_length - len(prompt)
    budget = remaining if spec.max_tokens is None else max(spec.max_tokens, 1)
    if budget > remaining:
        raise too_long(
            f"this model's context has {service.context_length} tokens, but the prompt's"
            f" {len(prompt)} and max_tokens {budget} add up to {len(prompt) + budget}",
            "max_tokens",
        )
    if spec.min_tokens > budget:
        raise bad_request(
            f"min_tokens is {spec.min_tokens}, but max_tokens is only {budget}", "min_tokens"
        )
    return budget
