"""OpenAI's streams of chats and completions with one choice."""

from typing import Any

from pando_router.migration.events import Event
from pando_router.migration.form import Fit
from pando_router.migration.sent import Owed, Sent

# Besides `content`: DeepSeek's and vLLM's names for reasoning, OpenAI's for a refusal.
_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")


class OpenAIEvents:
    def read(self, event: Event, sent: Sent) -> None:
        if not sent.identity:
            names = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
            sent.identity = {name: event[name] for name in names if name in event}
        has_text = False
        for choice in event.get("choices") or ():
            for channel, text in _texts(choice):
                sent.add(channel, text)
                has_text |= bool(text)
            sent.scored += _count_scores(choice)
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
            fit.counts(usage)
            if fit.cached_tokens is not None:
                details = usage.get("prompt_tokens_details") or {}
                usage["prompt_tokens_details"] = details | {"cached_tokens": fit.cached_tokens}
        choices = event.get("choices")
        if not choices:
            return True  # usage, or an error
        for choice in choices:
            choice.pop("token_ids", None)
            if fit.scores_owed:
                _fit_scores(choice, fit)
            if (delta := choice.get("delta")) is not None:
                _fit_delta(delta, sent, fit.owed)
            elif choice.get("text"):
                choice["text"] = fit.owed.new_part("text", choice["text"])
            if choice.get("finish_reason") is not None:
                fit.owed.settle()
                if sent.finished:
                    choice["finish_reason"] = None
        return any(_has_content(choice) for choice in choices)


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
    """A call's delta without the part that the client has; the id stays the first replica's."""
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


def _scores(choice: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists of a choice's log-probabilities, each with one item per token."""
    scores = choice.get("logprobs") or {}
    return {name: items for name, items in scores.items() if isinstance(items, list)}


def _count_scores(choice: dict[str, Any]) -> int:
    return max(map(len, _scores(choice).values()), default=0)


def _fit_scores(choice: dict[str, Any], fit: Fit) -> None:
    again = min(fit.scores_owed, _count_scores(choice))
    if again:
        fit.scores_owed -= again
        choice["logprobs"] |= {name: items[again:] for name, items in _scores(choice).items()}


def _has_content(choice: dict[str, Any]) -> bool:
    return bool(
        choice.get("delta")
        or choice.get("text")
        or choice.get("finish_reason")
        or _count_scores(choice)
    )
