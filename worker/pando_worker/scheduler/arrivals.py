"""Requests that arrive: what this worker can never run of them, and each as a `Req`."""

import math

import numpy as np

from pando_worker.memory.namespace import of_adapter
from pando_worker.messages import Embed, Generate, SamplingParams
from pando_worker.scheduler.images import read_images
from pando_worker.scheduler.req import Req

_NO_TOKENS = SamplingParams(max_new_tokens=0)


def misfit(
    command: Generate | Embed, *, max_request_tokens: int, has_grammars: bool, has_images: bool
) -> str | None:
    """Why this worker can never run a request; None if it can.

    Args:
        max_request_tokens: prompt and output of one request
        has_grammars, has_images: whether requests may have any
    """
    num_output, most = _num_output(command), _sampling(command).max_new_tokens
    prompt_len = len(command.input_ids) - num_output
    if prompt_len <= 0:
        return "the prompt has no tokens"
    if num_output and num_output >= most:
        return f"its {num_output} tokens are all that max_tokens {most} allows"
    if prompt_len + most > max_request_tokens:
        return (
            f"the prompt's {prompt_len} tokens and max_tokens {most} together exceed"
            f" this worker's limit of {max_request_tokens} tokens"
        )
    if grammar_of(command) and not has_grammars:
        return "this worker does not support grammars"
    if command.images and not has_images:
        return "this worker's model reads text only"
    return None


def make_req(command: Generate | Embed, *, arrival: int, now: float, images_are_whole: bool) -> Req:
    """
    Args:
        arrival: how many requests came before
        now: seconds
        images_are_whole: whether an image's tokens see each other
    """
    sampling = _sampling(command)
    num_known = len(command.input_ids)
    prompt_len = num_known - _num_output(command)
    ids = np.empty(prompt_len + sampling.max_new_tokens, dtype=np.int32)
    ids[:num_known] = command.input_ids
    return Req(
        rid=command.rid,
        images=read_images(command.images, ids, images_are_whole),
        ids=ids,
        num_known=num_known,
        prompt_len=prompt_len,
        sampling=sampling,
        arrival=arrival,
        queued_at=now,
        logprobs=command.logprobs if isinstance(command, Generate) else None,
        pooling=command.pooling if isinstance(command, Embed) else None,
        priority=command.priority,
        namespace=of_adapter(command.namespace, command.adapter),
        adapter=command.adapter,
        deadline=math.inf if command.deadline_s is None else now + command.deadline_s,
    )


def grammar_of(command: Generate | Embed) -> str | None:
    return command.grammar if isinstance(command, Generate) else None


def _sampling(command: Generate | Embed) -> SamplingParams:
    return command.sampling if isinstance(command, Generate) else _NO_TOKENS


def _num_output(command: Generate | Embed) -> int:
    return command.num_output if isinstance(command, Generate) else 0
