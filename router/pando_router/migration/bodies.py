"""Makes the request that asks another replica for the rest of an answer.

Three ways, the best that is possible:

- *again*: nothing of the answer was sent yet, so the request is repeated unchanged.
- *resume*: Pando's workers report the token ids of what they sent. The request repeats them as
  `resume_token_ids`, and the new worker continues exactly there: nothing is tokenized again, and
  stop strings, penalties, seeded draws, grammars, calls and reasoning are as if one worker had
  generated everything. It repeats the text, which the router drops. If the request asks for
  log-probabilities, only ids whose own were sent are included; the others are generated again.
- *text*: any other engine gets the prompt with the text so far. That is exact only if the text
  alone decides what follows; everything else is refused.
"""

from typing import Any

import msgspec

from pando_router.migration.errors import RefusedError
from pando_router.migration.form import Body, Form
from pando_router.migration.sent import Sent
from pando_router.requests.fields import is_many

# With these, the rest depends on more than the text before it, or is more than text.
_BEYOND_TEXT = (
    *("top_logprobs", "prompt_logprobs", "echo"),
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
        raise RefusedError("its request cannot be rewritten") from error


def has_one_choice(form: Form, body: Body) -> bool:
    sampling = form.sampling_of(body)
    many = any(is_many(body.get(name)) for name in form.prompt)
    return not many and (sampling.get("n") or 1) == 1 and (body.get("best_of") or 1) == 1


def wants_count(form: Form, body: Body) -> bool:
    """Whether the text path needs the token count of the text so far."""
    sampling = form.sampling_of(body)
    options = body.get("stream_options") or {}
    return (
        form.whole_text
        or bool(options.get("include_usage"))
        or any(sampling.get(name) is not None for name in (*_MAX_TOKENS, *_MIN_TOKENS))
    )


def continued(form: Form, body: Body, sent: Sent, tokens: int) -> Body:
    """The body for the text path; `tokens` counts the text so far. Raises RefusedError."""
    assert form.with_text is not None
    sampling = form.sampling_of(body)
    for name in _BEYOND_TEXT:
        if any(where.get(name) for where in (body, sampling)):
            raise RefusedError(f"text cannot continue a request with {name}")
    if beyond := [channel for channel in sent.texts if channel not in ("content", "text")]:
        raise RefusedError(f"the answer has more than text: {beyond[0]}")
    left = {
        name: _left(sampling[name], tokens, least=name in _MAX_TOKENS)
        for name in (*_MAX_TOKENS, *_MIN_TOKENS)
        if sampling.get(name) is not None
    }
    name = next(name for name in form.prompt if body.get(name) is not None)
    changed = left if sampling is body else {form.sampling: sampling | left}
    return body | changed | form.with_text(body, name, sent.text("content", "text"))


def _left(bound: Any, tokens: int, *, least: bool) -> int:
    left = int(bound) - tokens
    if least and left < 1:
        raise RefusedError("all of its tokens were sent, but not its finish reason")
    return max(left, 0)
