"""The streams of each API: what an event says, and an event of a continuation made the client's.

`read` writes down what goes to the client. `fit` changes an event in place so that it follows what
the client has: the same identity, one role, no text twice, the finish reason once, and the usage of
the whole; it says whether anything is left to send.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from pando_router.migration.errors import DivergedError
from pando_router.migration.events import Event
from pando_router.migration.sent import Owed, Sent


@dataclass(slots=True)
class Fit:
    """How a continuation fits to what was sent before it."""

    owed: Owed = field(default_factory=Owed)
    before: str = ""  # text that the continuation does not repeat, where its events hold all text
    ids_before: list[int] = field(default_factory=list)  # likewise
    tokens_before: int = 0  # output tokens that the continuation takes for prompt
    cached_tokens: int | None = None  # of the prompt, as the first replica told


class Form(Protocol):
    def read(self, event: Event, sent: Sent) -> None: ...

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        """All ids up to this event, `before` among them; None where they are not told."""
        ...

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool: ...


class OpenAIForm:
    """Chat chunks and text completions, of one choice."""

    def read(self, event: Event, sent: Sent) -> None:
        if not sent.identity:
            names = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
            sent.identity = {name: event[name] for name in names if name in event}
        has_text = False
        for choice in event.get("choices") or ():
            for channel, text in _texts(choice):
                sent.add(channel, text)
                has_text |= bool(text)
            sent.has_role |= "role" in (choice.get("delta") or ())
            sent.finished |= choice.get("finish_reason") is not None
        if usage := event.get("usage"):
            sent.has_usage |= not event.get("choices")
            if has_text:
                sent.text_tokens = usage.get("completion_tokens")
            if sent.cached_tokens is None:
                details = usage.get("prompt_tokens_details") or {}
                sent.cached_tokens = details.get("cached_tokens")

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        for choice in event.get("choices") or ():
            if (ids := choice.get("token_ids")) is not None:
                before = [] if before is None else before
                before += ids
        return before

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool:
        event.update(sent.identity)
        if usage := event.get("usage"):
            _fit_counts(usage, fit)
            if fit.cached_tokens is not None:
                details = usage.get("prompt_tokens_details") or {}
                usage["prompt_tokens_details"] = details | {"cached_tokens": fit.cached_tokens}
        choices = event.get("choices")
        if not choices:
            return True  # usage, or an error
        for choice in choices:
            choice.pop("token_ids", None)
            if (delta := choice.get("delta")) is not None:
                _fit_delta(delta, sent, fit.owed)
            elif choice.get("text"):
                choice["text"] = fit.owed.new_part("text", choice["text"])
            if choice.get("finish_reason") is not None:
                fit.owed.settle()
                if sent.finished:
                    choice["finish_reason"] = None
        return any(_says_something(choice) for choice in choices)


class NativeForm:
    """SGLang's /generate: each event holds all text and ids so far."""

    def read(self, event: Event, sent: Sent) -> None:
        meta = event.get("meta_info") or {}
        if not sent.identity and "id" in meta:
            sent.identity = {"id": meta["id"]}
        if sent.cached_tokens is None:
            sent.cached_tokens = meta.get("cached_tokens")
        if (text := event.get("text", "")) != sent.text("text"):
            sent.texts["text"] = text
            sent.text_tokens = meta.get("completion_tokens")
            sent.text_ids = event.get("output_ids") or []
        sent.finished |= meta.get("finish_reason") is not None

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        ids: list[int] | None = event.get("output_ids")
        return before if ids is None else ids

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool:
        meta = event.get("meta_info")
        if meta is None:
            return True  # an error
        meta.update(sent.identity)
        _fit_counts(meta, fit)
        if fit.cached_tokens is not None:
            meta["cached_tokens"] = fit.cached_tokens
        finish = meta.get("finish_reason")
        if finish is not None and finish.get("length") is not None:
            finish["length"] += fit.tokens_before
        event["text"] = fit.before + event.get("text", "")
        if "output_ids" in event:
            event["output_ids"] = fit.ids_before + event["output_ids"]
        had, has = sent.text("text"), event["text"]
        if not has.startswith(had) and (finish is not None or not had.startswith(has)):
            raise DivergedError("the new replica's text is not what was sent before")
        return not sent.finished and (len(has) > len(had) or finish is not None)


FORMS: dict[str, Form] = {
    "/v1/chat/completions": OpenAIForm(),
    "/v1/completions": OpenAIForm(),
    "/generate": NativeForm(),
}


def _texts(choice: dict[str, Any]) -> list[tuple[str | tuple[int, str], str]]:
    """The text in a choice's event, by channel."""
    delta = choice.get("delta")
    if delta is None:
        return [("text", choice.get("text") or "")]
    found: list[tuple[str | tuple[int, str], str]] = [
        (name, text) for name in _TEXTS if (text := delta.get(name))
    ]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        names = [name for name in ("name", "arguments") if name in function]
        found += [((call.get("index", 0), name), function[name] or "") for name in names]
    return found


# Beside `content`: DeepSeek's and vLLM's names for reasoning, OpenAI's for a refusal.
_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")


def _fit_delta(delta: dict[str, Any], sent: Sent, owed: Owed) -> None:
    if sent.has_role:
        delta.pop("role", None)
    for name in _TEXTS:
        if isinstance(delta.get(name), str):
            delta[name] = owed.new_part(name, delta[name])
            if not delta[name]:
                del delta[name]
    calls = [_fit_call(call, sent, owed) for call in delta.pop("tool_calls", None) or ()]
    if left := [call for call in calls if call is not None]:
        delta["tool_calls"] = left


def _fit_call(call: dict[str, Any], sent: Sent, owed: Owed) -> dict[str, Any] | None:
    """A call's delta without what the client has of that call; its id is the first replica's."""
    index, function = call.get("index", 0), dict(call.get("function") or {})
    known = (index, "name") in sent.texts
    if "name" in function:
        function["name"] = owed.new_part((index, "name"), function["name"])
    if "arguments" in function:
        function["arguments"] = owed.new_part((index, "arguments"), function["arguments"] or "")
    if not known:
        return call | {"function": function}
    if not function.get("arguments"):
        return None
    return {"index": index, "function": {"arguments": function["arguments"]}}


def _fit_counts(usage: dict[str, Any], fit: Fit) -> None:
    """What the continuation took for prompt is output; their sum stays."""
    if fit.tokens_before:
        usage["completion_tokens"] += fit.tokens_before
        usage["prompt_tokens"] -= fit.tokens_before


def _says_something(choice: dict[str, Any]) -> bool:
    return bool(choice.get("delta") or choice.get("text") or choice.get("finish_reason"))
