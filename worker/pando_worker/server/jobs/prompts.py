"""Checks that every prompt must pass before it is sent to the scheduler."""

from starlette.requests import Request

from pando_worker.policies.schedule import SCHEDULE_POLICIES
from pando_worker.server.errors import bad_request, too_long
from pando_worker.server.protocol.headers.priority import header_priority
from pando_worker.server.service import Service
from pando_worker.server.text.long_texts import Room


def room_for(service: Service, param: str, *, keep_last: int | None, output: int) -> Room:
    """The room for a prompt.

    Args:
        param: the prompt's field in the request
        keep_last: `truncate_prompt_tokens`; -1 keeps as many as leave room for the output
        output: tokens to generate; those of encoder-decoders need no room beside the prompt
    """
    limit = service.context_length
    if (source := service.model.source) is not None:
        limit, output = source.positions, 0
    if keep_last is not None and keep_last < 0:
        keep_last = max(limit - output, 1)
    from_start = service.model.is_text_encoder or source is not None
    return Room(limit, keep_last, param, from_start=from_start)


def fitting(service: Service, prompt: list[int], room: Room, *, output: int) -> list[int]:
    """The prompt, truncated only if the request asks for it.

    Args:
        output: tokens to generate, of which at least one must fit

    Raises:
        ApiError: 400, it is empty or too long, or has a token that is not in the vocabulary.
    """
    limit, param = room.tokens, room.param
    if service.model.source is not None:
        output = 0
    if room.keep is not None:
        prompt = prompt[: room.keep] if room.from_start else prompt[-room.keep :]
    if not prompt:
        raise bad_request("the prompt has no tokens", param)
    if len(prompt) + min(output, 1) > limit:
        raise too_long(
            f"this model's context has {limit} tokens, but the prompt alone has {len(prompt)}",
            param,
        )
    if (highest := max(prompt)) >= service.model.vocab_size:
        raise bad_request(
            f"token id {highest} must be below the vocabulary's size {service.model.vocab_size}",
            param,
        )
    return prompt


def priority_of(service: Service, request: Request, priority: int) -> int:
    """The header's priority, otherwise the body's `priority`.

    A schedule policy without priorities ignores the header, by which a router's queue is ordered,
    too. Raises ApiError 400 for the body's own priority then, and for a header that is no integer.
    """
    if SCHEDULE_POLICIES[service.settings.schedule_policy].by_priority:
        by_header = header_priority(request)
        return priority if by_header is None else by_header
    if priority:
        raise bad_request(
            f"priority is {priority}, but this worker's schedule_policy is"
            f" {service.settings.schedule_policy!r}, which ignores priorities",
            "priority",
        )
    return 0
