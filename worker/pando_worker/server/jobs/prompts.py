"""Checks that every prompt must pass before it is sent to the scheduler."""

from pando_worker.policies.schedule import SCHEDULE_POLICIES
from pando_worker.server.errors import bad_request
from pando_worker.server.service import Service
from pando_worker.server.text.long_texts import Room


def room_for(service: Service, param: str, *, keep_last: int | None, output: int) -> Room:
    """The room for a prompt.

    Args:
        param: the prompt's field in the request
        keep_last: `truncate_prompt_tokens`; -1 keeps as many as leave room for the output
        output: tokens to generate
    """
    limit = service.context_length
    if keep_last is not None and keep_last < 0:
        keep_last = max(limit - output, 1)
    return Room(limit, keep_last, param)


def fitting(service: Service, prompt: list[int], room: Room, *, output: int) -> list[int]:
    """The prompt, truncated only if the request asks for it.

    Args:
        output: tokens to generate, of which at least one must fit

    Raises:
        ApiError: 400, it is empty or too long, or has a token that is not in the vocabulary.
    """
    limit, param = room.tokens, room.param
    if room.keep_last is not None:
        prompt = prompt[-room.keep_last :]
    if not prompt:
        raise bad_request("the prompt has no tokens", param)
    if len(prompt) + min(output, 1) > limit:
        raise bad_request(
            f"this model's context has {limit} tokens, but the prompt alone has {len(prompt)}",
            param,
            "context_length_exceeded",
        )
    if (highest := max(prompt)) >= service.model.vocab_size:
        raise bad_request(
            f"token id {highest} must be below the vocabulary's size {service.model.vocab_size}",
            param,
        )
    return prompt


def check_priority(service: Service, priority: int) -> None:
    """Raises ApiError 400 for a priority that the schedule policy would ignore."""
    if priority and not SCHEDULE_POLICIES[service.settings.schedule_policy].by_priority:
        raise bad_request(
            f"priority is {priority}, but this worker's schedule_policy is"
            f" {service.settings.schedule_policy!r}, which ignores priorities",
            "priority",
        )
