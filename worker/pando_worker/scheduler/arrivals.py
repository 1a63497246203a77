"""Requests that arrive: what this worker can never run of them, and each as a `Req`."""

import math

import numpy as np

from pando_worker.memory.namespace import of_adapter, of_source
from pando_worker.messages import Align, Embed, Generate, SamplingParams, Verify
from pando_worker.pools import SourceForm
from pando_worker.scheduler.images import read_images
from pando_worker.scheduler.req import Alignment, Req
from pando_worker.scheduler.sources import read_source, source_misfit

_NO_TOKENS = SamplingParams(max_new_tokens=0)


Arriving = Generate | Embed | Align | Verify
"""The commands that become requests."""


def misfit(
    command: Arriving,
    *,
    max_request_tokens: int,
    has_grammars: bool,
    has_images: bool,
    source: SourceForm | None,
) -> str | None:
    """Why this worker can never run a request; None if it can.

    Args:
        max_request_tokens: prompt and output of one request
        has_grammars, has_images: whether requests may have any
        source: of an encoder-decoder
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
    ruled = isinstance(command, Generate | Verify) and command.rules is not None
    if (grammar_of(command) or ruled) and not has_grammars:
        return "this worker does not support grammars"
    if not isinstance(command, Align | Verify) and command.images and not has_images:
        return "this worker's model reads text only"
    return source_misfit(command, source)


def make_req(
    command: Arriving, *, arrival: int, now: float, page_size: int, images_are_whole: bool
) -> Req:
    """
    Args:
        arrival: how many requests came before
        now: seconds
        page_size: of the KV pool
        images_are_whole: whether an image's tokens see each other
    """
    sampling = _sampling(command)
    num_known = len(command.input_ids)
    prompt_len = num_known - _num_output(command)
    ids = np.empty(prompt_len + sampling.max_new_tokens, dtype=np.int32)
    ids[:num_known] = command.input_ids
    adapter = b"" if isinstance(command, Align | Verify) else command.adapter
    namespace, source, probe = of_adapter(command.namespace, adapter), None, None
    rules, alignment, verified_from = None, None, None
    if not isinstance(command, Embed) and command.source:
        source = read_source(command.source, namespace, page_size)
        namespace = of_source(namespace, command.source.digest)
    if isinstance(command, Generate):
        rules, probe = command.rules, command.probe
    elif isinstance(command, Align):
        alignment = Alignment(command.first, command.positions)
    elif isinstance(command, Verify):
        rules, probe, verified_from = command.rules, command.probe, command.first
    images = () if isinstance(command, Align | Verify) else command.images
    return Req(
        rid=command.rid,
        images=read_images(images, ids, images_are_whole),
        ids=ids,
        num_known=num_known,
        prompt_len=prompt_len,
        sampling=sampling,
        arrival=arrival,
        queued_at=now,
        logprobs=command.logprobs if isinstance(command, Generate) else None,
        pooling=command.pooling if isinstance(command, Embed) else None,
        is_normalized=isinstance(command, Embed) and command.is_normalized,
        second=command.second if isinstance(command, Embed) else 0,
        priority=command.priority,
        namespace=namespace,
        source=source,
        probe=probe,
        rules=rules,
        alignment=alignment,
        verified_from=verified_from,
        adapter=adapter,
        deadline=math.inf if command.deadline_s is None else now + command.deadline_s,
    )


def array_bytes(command: Arriving) -> int:
    """Of its images and its source."""
    source = None if isinstance(command, Embed) else command.source
    images = () if isinstance(command, Align | Verify) else command.images
    return sum(image.num_bytes for image in images) + (
        source.array.data.buffer.nbytes if source else 0
    )


def grammar_of(command: Arriving) -> str | None:
    return command.grammar if isinstance(command, Generate) else None


def _sampling(command: Arriving) -> SamplingParams:
    return command.sampling if isinstance(command, Generate) else _NO_TOKENS


def _num_output(command: Arriving) -> int:
    return command.num_output if isinstance(command, Generate) else 0
