"""From a request that was understood to the job that runs it: checked against the model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from pando_worker.messages import Generate, LogprobsWanted
from pando_worker.server.errors import bad_request
from pando_worker.server.generation import Job
from pando_worker.server.jobs.prompts import check_priority, fitting, room_for
from pando_worker.server.jobs.sampling import sampling_params, seeds, stop_token_ids
from pando_worker.server.protocol.cache_salt import namespace_of
from pando_worker.server.protocol.deadline import remaining_s
from pando_worker.server.protocol.resume import FIELD, check_resumed
from pando_worker.server.protocol.sampling import SamplingFields
from pando_worker.server.service import Service
from pando_worker.server.text.reader import TextOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an API's request asks for, beside the sampling fields that all have."""

    prompts: Sequence[str | list[int]]
    prompt_param: str  # the field that they came in, for errors
    max_tokens: int | None  # None: all that fits
    min_tokens: int = 0
    samples: int = 1  # choices of each prompt
    keep_last: int | None = None  # truncate_prompt_tokens
    seed: int | None = None
    name: str | None = None  # what /abort_request knows it by; the request id by default
    priority: int = 0
    cache_salt: str | None = None
    logprobs: LogprobsWanted | None = None
    grammar: str | None = None
    resumed: list[int] = field(default_factory=list)  # see resume.py
    visible_tokens: frozenset[str] = frozenset()  # special tokens that the text must show


async def make_job(service: Service, request: Request, fields: SamplingFields, asked: Asked) -> Job:
    """Raises ApiError 400 for what the model or this worker can never do, 504 for a late one."""
    _check_head(service)
    _check_counts(service, asked)
    check_priority(service, asked.priority)
    _check_ids(service, "logit_bias", fields.logit_bias or {})
    _check_ids(service, "stop_token_ids", fields.stop_token_ids or [])
    _check_ids(service, FIELD, asked.resumed)
    output = max(asked.max_tokens or 1, 1)
    room = room_for(service, asked.prompt_param, keep_last=asked.keep_last, output=output)
    prompts = [
        fitting(service, prompt, room, output=output)
        for prompt in await service.encode_all(asked.prompts, room)
    ]
    budgets = [_budget(service, prompt, asked) for prompt in prompts]
    check_resumed(
        asked.resumed,
        choices=asked.samples * len(prompts),
        budget=budgets[0],
    )
    deadline_s = remaining_s(request, service.settings.request_timeout_seconds)
    space = namespace_of(request, asked.cache_salt)
    orders = [
        Generate(
            rid=asked.name or request.state.request_id,
            input_ids=prompt + asked.resumed,
            num_output=len(asked.resumed),
            sampling=sampling_params(
                fields,
                service.model.generation,
                max_new_tokens=budget,
                min_new_tokens=asked.min_tokens,
                seed=seed,
            ),
            logprobs=asked.logprobs,
            grammar=asked.grammar,
            priority=asked.priority,
            namespace=space,
            deadline_s=deadline_s,
        )
        for prompt, budget in zip(prompts, budgets, strict=True)
        for seed in seeds(asked.seed, asked.samples)
    ]
    return Job(
        prompts=prompts,
        samples=asked.samples,
        orders=orders,
        text=_text_options(service, fields, asked),
        resumed=asked.resumed,
        prompt_only=asked.max_tokens == 0,
        received=request.state.received,
        trace=request.state.trace,
    )


def _text_options(service: Service, fields: SamplingFields, asked: Asked) -> TextOptions:
    special = service.model.tokenizer.vocabulary.special
    if fields.skip_special_tokens:
        names = asked.visible_tokens
        special = {id: name for id, name in special.items() if name.decode() in names}
    return TextOptions(
        stop=fields.stop,
        stop_token_ids=stop_token_ids(fields, service.model.generation),
        include_stop=fields.include_stop_str_in_output,
        special_tokens=special,
        unstoppable=asked.min_tokens,
    )


def _check_head(service: Service) -> None:
    if not service.model.has_head:
        raise bad_request(
            f"{service.model.name!r} has no head: it generates nothing and can only be asked for"
            " /v1/embeddings",
            "model",
        )


def _check_counts(service: Service, asked: Asked) -> None:
    limit = service.ready.max_running_requests
    if asked.samples > limit:
        raise bad_request(f"n is {asked.samples}; this worker runs {limit} requests at once", "n")
    limit = service.settings.max_queued_requests
    if (choices := asked.samples * len(asked.prompts)) > limit:
        raise bad_request(
            f"{len(asked.prompts)} prompts with n {asked.samples} are {choices} requests; this"
            f" worker queues {limit}",
            asked.prompt_param,
        )


def _check_ids(service: Service, param: str, ids: Iterable[int]) -> None:
    highest = max(ids, default=0)
    if highest >= service.model.vocab_size:
        raise bad_request(
            f"{param} has token id {highest}, which is not below the vocabulary's size"
            f" {service.model.vocab_size}",
            param,
        )


def _budget(service: Service, prompt: list[int], asked: Asked) -> int:
    """Tokens to generate at most; the scheduler makes one at least."""
    remaining = service.context_length - len(prompt)
    budget = remaining if asked.max_tokens is None else max(asked.max_tokens, 1)
    if budget > remaining:
        raise bad_request(
            f"this model's context has {service.context_length} tokens, but {len(prompt)} of prompt"
            f" and max_tokens {budget} are {len(prompt) + budget}",
            "max_tokens",
            "context_length_exceeded",
        )
    if asked.min_tokens > budget:
        raise bad_request(
            f"min_tokens is {asked.min_tokens}, above max_tokens, which is {budget}", "min_tokens"
        )
    return budget
