"""Sources that arrive: what the encoder reads for a request."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from pando_worker.memory.image_ids import image_ids
from pando_worker.messages import (
    Align,
    Embed,
    Generate,
    Probe,
    SentArray,
    Source,
    SpeechRules,
    Verify,
)
from pando_worker.pools import SourceForm
from pando_worker.scheduler.req import SourceSpan

DIGEST_BYTES = 16


def source_misfit(
    command: Generate | Embed | Align | Verify, form: SourceForm | None
) -> str | None:
    """Why a request cannot run for its source, or for want of one; None if it can.

    Args:
        form: None for a model without an encoder
    """
    if isinstance(command, Embed):
        return None if form is None else "this worker's model makes no embeddings"
    if isinstance(command, Align | Verify):
        if form is None:
            return "this worker's model has no encoder"
        wrong = _malformed(command.source, form)
        if isinstance(command, Align):
            return wrong or _wrong_alignment(command)
        return wrong or _wrong_verification(command, form)
    source, probe = command.source, command.probe
    if form is None:
        has_any = source or probe or command.rules
        return "this worker's model has no encoder" if has_any else None
    if source is None:
        what = "audio" if form.mel_bins else "text"
        return f"this worker's model answers to {what} alone, and the request has none"
    if command.rules and command.grammar:
        return "a request has either rules or a grammar"
    return (
        _malformed(source, form)
        or (
            _wrong_probe(probe, len(command.input_ids) - command.num_output, form)
            if probe
            else None
        )
        or (_wrong_rules(command.rules, form) if command.rules else None)
    )


def _malformed(source: Source, form: SourceForm) -> str | None:
    array = source.array
    if len(source.digest) != DIGEST_BYTES:
        return f"the source's digest has {len(source.digest)} bytes, not {DIGEST_BYTES}"
    if form.mel_bins:
        wanted = ("<f4", (form.mel_bins, 2 * form.positions))
        if (array.dtype, array.shape) != wanted or source.length != form.positions:
            return f"the audio has features of {array.dtype} {array.shape}, not {wanted}"
    elif (array.dtype, array.shape) != ("<i4", (source.length,)):
        return f"the source has ids of {array.dtype} {array.shape}, not <i4 ({source.length},)"
    elif not 1 <= source.length <= form.positions:
        return f"the source has {source.length} tokens, and the encoder reads 1 to {form.positions}"
    if array.data.buffer.nbytes != 4 * prod(array.shape):
        return f"the source has {array.data.buffer.nbytes} bytes, not those of {array.shape}"
    if not form.mel_bins and not _are_tokens(_numbers(array), form.vocab_size):
        return f"the source has ids that are not in the vocabulary of {form.vocab_size}"
    return None


def _wrong_probe(probe: Probe, prompt_len: int, form: SourceForm) -> str | None:
    if not 0 <= probe.position < prompt_len:
        return f"the probe is at {probe.position}, and the prompt has {prompt_len} tokens"
    if not 1 <= len(probe.token_ids) <= form.vocab_size:
        return f"the probe has {len(probe.token_ids)} tokens"
    if not _are_tokens(np.array(probe.token_ids), form.vocab_size):
        return f"the probe has ids that are not in the vocabulary of {form.vocab_size}"
    return None


def _wrong_alignment(command: Align) -> str | None:
    if not 0 <= command.first < len(command.input_ids):
        return f"none of the {len(command.input_ids)} tokens is behind the first, {command.first}"
    if not 1 <= command.positions <= command.source.length:
        return f"the source has {command.source.length} positions, not {command.positions}"
    return None


def _wrong_verification(command: Verify, form: SourceForm) -> str | None:
    if not 1 <= command.first <= len(command.input_ids):
        return f"the output begins at {command.first} of {len(command.input_ids)} tokens"
    return _wrong_probe(command.probe, command.first, form) or _wrong_rules(command.rules, form)


def _wrong_rules(rules: SpeechRules, form: SourceForm) -> str | None:
    ids = [rules.end_token, *rules.suppressed, *rules.suppressed_first, rules.first_timestamp or 0]
    if not _are_tokens(np.array(ids), form.vocab_size) or (rules.max_initial or 0) < 0:
        return f"the rules have ids that are not in the vocabulary of {form.vocab_size}"
    return None


def _are_tokens(ids: NDArray[np.int_] | NDArray[np.int32], vocab_size: int) -> bool:
    return bool(ids.min() >= 0 and ids.max() < vocab_size)


def _numbers(array: SentArray) -> NDArray[np.int32]:
    numbers: NDArray[np.int32] = np.frombuffer(array.data.buffer, dtype=array.dtype)
    return numbers.reshape(array.shape)


def read_source(source: Source, namespace: bytes, page_size: int) -> SourceSpan:
    """
    Args:
        namespace: of the radix cache, within which its keys and values are shared
    """
    num_pages = -(-source.length // page_size)
    return SourceSpan(
        digest=source.digest,
        length=source.length,
        array=_numbers(source.array),
        key=image_ids(source.digest, num_pages * page_size),
        num_pages=num_pages,
        namespace=namespace,
    )
