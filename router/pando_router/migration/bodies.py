"""The request that asks another replica for the rest of an answer, made of the client's own.

Three ways, the best that can be had:

- *again*: nothing of the answer is out yet, so the request goes as it came.
- *resume*: Pando's workers told the token ids of what they sent. They go along as
  `resume_token_ids`, and the new worker goes on from exactly there: nothing is tokenized anew, and
  stop strings, penalties, the seed's draws, grammars, calls and reasoning are as if one worker had
  generated it all. It repeats the text, which the client is spared.
- *text*: any other engine gets the prompt with the text so far. That is the same only where
  nothing but the text decides what follows; everything else is refused.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from pando_router.migration.errors import RefusedError
from pando_router.migration.sent import Sent

Body = dict[str, Any]

RESUME = "resume_token_ids"

# With these, what follows depends on more than the text before it, or says more than text.
_BEYOND_TEXT = (
    *("logprobs", "top_logprobs", "prompt_logprobs", "echo", "return_logprob"),
    *("presence_penalty", "frequency_penalty", "response_format", "structured_outputs"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("regex", "ebnf", "json_schema", "structural_tag", "truncate_prompt_tokens"),
)
_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_new_tokens")
_MIN_TOKENS = ("min_tokens", "min_new_tokens")


def decode(body: bytes) -> Body:
    try:
        return msgspec.json.decode(body, type=Body)
    except (msgspec.DecodeError, UnicodeError) as error:  # an integer beyond 64 bits, say
        raise RefusedError("its request cannot be written anew") from error


def sampling_of(body: Body) -> Body:
    """Where the request says how to sample: in itself, but for /generate."""
    inner = body.get("sampling_params")
    return inner if isinstance(inner, dict) else body


def has_one_choice(body: Body) -> bool:
    sampling = sampling_of(body)
    given = (body.get("prompt"), body.get("text"), body.get("input_ids"))
    many = any(isinstance(p, list) and p and isinstance(p[0], (str, list)) for p in given)
    return not many and (sampling.get("n") or 1) == 1 and (body.get("best_of") or 1) == 1


def resumed(body: Body, token_ids: list[int]) -> Body:
    """Raises RefusedError where token ids are not all that counts."""
    if body.get("logprobs") is not None and body["logprobs"] is not False:
        raise RefusedError("log-probabilities of what was held back are lost")
    if body.get("return_logprob"):
        raise RefusedError("log-probabilities of what was generated are lost")
    return body | {RESUME: token_ids}


def wants_count(body: Body) -> bool:
    """Whether the text path must know how many tokens the text so far was."""
    sampling = sampling_of(body)
    options = body.get("stream_options") or {}
    return (
        "text" in body
        or bool(options.get("include_usage"))
        or any(sampling.get(name) is not None for name in (*_MAX_TOKENS, *_MIN_TOKENS))
    )


def continued(body: Body, sent: Sent, tokens: int) -> Body:
    """The text path; `tokens` are those of the text so far. Raises RefusedError."""
    sampling = sampling_of(body)
    for name in _BEYOND_TEXT:
        if any(where.get(name) for where in (body, sampling)):
            raise RefusedError(f"{name} cannot be continued by text")
    if beyond := [channel for channel in sent.texts if channel not in ("content", "text")]:
        raise RefusedError(f"the answer has more than text: {beyond[0]}")
    left = {
        name: _left(sampling[name], tokens, least=name in _MAX_TOKENS)
        for name in (*_MAX_TOKENS, *_MIN_TOKENS)
        if sampling.get(name) is not None
    }
    if sampling is body:
        return body | left | _with_text(body, sent.text("content", "text"))
    return body | {"sampling_params": sampling | left} | _with_text(body, sent.text("text"))


def _left(bound: Any, tokens: int, *, least: bool) -> int:
    left = int(bound) - tokens
    if least and left < 1:
        raise RefusedError("all of its tokens are out, but not how it ended")
    return max(left, 0)


def _with_text(body: Body, text: str) -> Body:
    prompt = _PROMPTS[next(name for name in _PROMPTS if body.get(name) is not None)]
    return prompt(body, text)


def _chat(body: Body, text: str) -> Body:
    messages = list(body["messages"])
    if body.get("continue_final_message"):
        last = messages.pop()
        if not isinstance(last.get("content"), str):
            raise RefusedError("its last message has parts, which cannot be continued by text")
        text = last["content"] + text
    messages.append({"role": "assistant", "content": text})
    return {
        "messages": messages,
        "continue_final_message": True,
        "add_generation_prompt": False,
    }


def _prompt(name: str) -> Callable[[Body, str], Body]:
    def with_text(body: Body, text: str) -> Body:
        if not isinstance(body[name], str):
            raise RefusedError("text cannot be appended to token ids")
        return {name: body[name] + text}

    return with_text


_PROMPTS: dict[str, Callable[[Body, str], Body]] = {
    "messages": _chat,
    "prompt": _prompt("prompt"),
    "text": _prompt("text"),
    "input_ids": _prompt("input_ids"),
}
