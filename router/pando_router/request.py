"""A proxied request's body, parsed once: what placement must know of it, and no more.

Only the fields that decide where a request goes are checked here; everything else is the worker's
to judge, and its bytes are forwarded as they came.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec

from pando_fleet.prefix import PrefixError, chat_bytes, chunk_keys, completion_bytes, seed
from pando_router.errors import bad_request


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    model: str | None
    computes: bool = True  # has a prompt to prefill: takes a place on the replica, and its cache
    prefix: bytes = b""  # canonical bytes of the (first) prompt
    extra_bytes: int = 0  # canonical bytes of further prompts in the same request
    token_ids: int | None = None  # exact prompt tokens, where the client sent token ids
    max_tokens: int | None = None  # the client's bound on the answer

    def keys(self, model: str) -> bytes:
        """Packed keys of the prompt's full chunks, as pando_fleet.prefix.chunk_keys makes them."""
        return chunk_keys(self.prefix, seed(model))

    def prompt_tokens(self, bytes_per_token: float) -> int:
        """Estimated from the bytes, exact where token ids were sent; 1 at least."""
        if self.token_ids is not None:
            return max(1, self.token_ids)
        return max(1, ceil((len(self.prefix) + self.extra_bytes) / bytes_per_token))

    def output_tokens(self, expected: int) -> int:
        return expected if self.max_tokens is None else min(self.max_tokens, expected)


class _Chat(msgspec.Struct):
    model: str
    messages: list[Any]
    tools: list[Any] | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None


class _Completion(msgspec.Struct):
    model: str
    prompt: Any
    max_tokens: Any = None


class _Generate(msgspec.Struct):
    model: str | None = None
    text: Any = None
    input_ids: Any = None
    sampling_params: Any = None


class _Embeddings(msgspec.Struct):
    model: str
    input: Any


class _Tokenization(msgspec.Struct):
    model: str | None = None


def _chat(body: bytes) -> Request:
    chat = _decode_chat(body)
    return Request(
        model=chat.model,
        prefix=_canonical("messages", chat_bytes, chat.messages, chat.tools),
        max_tokens=_count(chat.max_completion_tokens) or _count(chat.max_tokens),
    )


def _completion(body: bytes) -> Request:
    completion = _decode_completion(body)
    return _prompted(completion.model, completion.prompt, "prompt", _count(completion.max_tokens))


def _generate(body: bytes) -> Request:
    generate = _decode_generate(body)
    if (generate.text is None) == (generate.input_ids is None):
        raise bad_request("give either 'text' or 'input_ids'", "text")
    sampling = generate.sampling_params
    max_tokens = _count(sampling.get("max_new_tokens")) if isinstance(sampling, dict) else None
    if generate.text is not None:
        return _prompted(generate.model, generate.text, "text", max_tokens)
    return _prompted(generate.model, generate.input_ids, "input_ids", max_tokens)


def _embeddings(body: bytes) -> Request:
    embeddings = _decode_embeddings(body)
    return _prompted(embeddings.model, embeddings.input, "input", max_tokens=0)


def _tokenization(body: bytes) -> Request:
    return Request(model=_decode_tokenization(body).model, computes=False)


_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode
_decode_generate = msgspec.json.Decoder(_Generate).decode
_decode_embeddings = msgspec.json.Decoder(_Embeddings).decode
_decode_tokenization = msgspec.json.Decoder(_Tokenization).decode

PARSERS: dict[str, Callable[[bytes], Request]] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
    "/v1/embeddings": _embeddings,
    "/generate": _generate,
    "/tokenize": _tokenization,
    "/detokenize": _tokenization,
}


def parse(path: str, body: bytes) -> Request:
    """The request for one of PARSERS' paths. Raises ApiError 400 for what cannot be placed."""
    try:
        return PARSERS[path](body)
    except msgspec.ValidationError as error:
        raise bad_request(str(error), _param(error)) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise bad_request(f"the request body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise bad_request("the request body is nested too deeply") from error


def _prompted(model: str | None, prompt: Any, param: str, max_tokens: int | None) -> Request:
    """A prompt as text or token ids, or a list of prompts; the first one decides the placement."""
    many = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], (str, list))
    prompts = prompt if many else [prompt]
    encoded = [_canonical(param, completion_bytes, one) for one in prompts]
    is_ids = isinstance(prompts[0], list)
    return Request(
        model=model,
        prefix=encoded[0],
        extra_bytes=sum(map(len, encoded[1:])),
        token_ids=sum(map(len, prompts)) if is_ids else None,
        max_tokens=max_tokens,
    )


def _canonical(param: str, encode: Callable[..., bytes], *args: Any) -> bytes:
    try:
        return encode(*args)
    except PrefixError as error:
        raise bad_request(str(error), param) from error


def _count(value: Any) -> int | None:
    """A token bound as far as it is one; a senseless value is the worker's to refuse."""
    return value if type(value) is int and value > 0 else None


def _param(error: msgspec.ValidationError) -> str | None:
    """The field's name in "... at `$.messages[0]`" or "... missing required field `messages`"."""
    found = re.search(r"\$\.(\w+)|missing required field `(\w+)`", str(error))
    return (found[1] or found[2]) if found else None
