"""SGLang's /generate."""

from typing import Any

import msgspec
from msgspec.structs import replace

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import seen_bytes
from pando_router.endpoints.endpoint import Endpoint, Replay
from pando_router.errors import bad_request
from pando_router.migration.errors import DivergedError
from pando_router.migration.events import Event
from pando_router.migration.form import Fit, Form
from pando_router.migration.sent import Sent
from pando_router.requests.fields import canonical, count, deterministic, priority, text
from pando_router.requests.plain import prompted
from pando_router.requests.request import Request


class GenerateBody(msgspec.Struct, gc=False):
    model: str | None = None
    text: Any = None
    input_ids: Any = None
    image_data: Any = None
    sampling_params: Any = None
    stream: Any = None
    priority: Any = None
    return_logprob: Any = None
    lora_path: Any = None
    extra_key: Any = None
    cache_salt: Any = None


def _read(fields: GenerateBody) -> Request:
    if (fields.text is None) == (fields.input_ids is None):
        raise bad_request("give either 'text' or 'input_ids'", "text")
    # Several prompts may have a list of these; then the answers' limits stay unknown.
    sampling = fields.sampling_params if isinstance(fields.sampling_params, dict) else {}
    request = Request(
        model=fields.model,
        max_tokens=count(sampling.get("max_new_tokens")),
        stream=fields.stream is True,
        n=count(sampling.get("n")) or 1,
        deterministic=deterministic(sampling.get("temperature"), sampling.get("sampling_seed")),
        scored=bool(fields.return_logprob),
        priority=priority(fields.priority),
        cache_salt=_salt(fields.cache_salt, fields.extra_key, fields.lora_path),
    )
    if fields.text is not None:
        request = prompted(request, fields.text, "text")
    else:
        request = prompted(request, fields.input_ids, "input_ids")
    return _with_images(request, fields.image_data) if fields.image_data else request


def _with_images(request: Request, urls: Any) -> Request:
    images: list[PrefixImage] = []
    seen = canonical("image_data", seen_bytes, urls, images)
    return replace(request, prefix=seen + request.prefix, images=tuple(images))


def _salt(*names: Any) -> str:
    """Combines values that each separate namespaces; the first alone is used as it is."""
    given = [text(name) or "" for name in names]
    return given[0] if not any(given[1:]) else msgspec.json.encode(given).decode()


_SCORES = tuple(
    f"{side}_{kind}_logprobs" for side in ("input", "output") for kind in ("token", "top")
)


class _Events:
    """Events that each hold all text and ids so far."""

    def read(self, event: Event, sent: Sent) -> None:
        meta = event.get("meta_info") or {}
        if not sent.identity and "id" in meta:
            sent.identity = {"id": meta["id"]}
        if sent.cached_tokens is None:
            sent.cached_tokens = meta.get("cached_tokens")
        if (has := event.get("text", "")) != sent.text("text"):
            sent.texts["text"] = has
            sent.text_tokens = meta.get("completion_tokens")
            sent.text_ids = event.get("output_ids") or []
        sent.scores = {name: meta[name] for name in _SCORES if meta.get(name)}
        sent.scored = len(sent.scores.get("output_token_logprobs", ()))
        sent.finished |= meta.get("finish_reason") is not None

    def token_ids(self, event: Event, before: list[int] | None) -> list[int] | None:
        ids: list[int] | None = event.get("output_ids")
        return before if ids is None else ids

    def fit(self, event: Event, sent: Sent, fit: Fit) -> bool:
        meta = event.get("meta_info")
        if meta is None:
            return True  # an error
        meta.update(sent.identity)
        fit.counts(meta)
        if fit.cached_tokens is not None:
            meta["cached_tokens"] = fit.cached_tokens
        finish = meta.get("finish_reason")
        if finish is not None and finish.get("length") is not None:
            finish["length"] += fit.tokens_before
        event["text"] = fit.before + event.get("text", "")
        if "output_ids" in event:
            event["output_ids"] = fit.ids_before + event["output_ids"]
        for name, before in fit.scores_before.items():
            meta[name] = before + (meta.get(name) or [])
        had, has = sent.text("text"), event["text"]
        if not has.startswith(had) and (finish is not None or not had.startswith(has)):
            raise DivergedError("the new replica's text differs from what was sent before")
        return not sent.finished and (len(has) > len(had) or finish is not None)


_PROMPT = ("text", "input_ids")

GENERATE = Endpoint(
    paths=("/generate",),
    api="SGLang",
    placed_by="`image_data`, then the first `text` or `input_ids`",
    body=GenerateBody,
    read=_read,
    example={"text": "Once upon a time", "sampling_params": {"max_new_tokens": 10}},
    salts={"sglang": "extra_key"},
    replay=Replay(_PROMPT, {"sampling_params": {"max_new_tokens": 1, "temperature": 0}}),
    migration=Form(_Events(), _PROMPT, sampling="sampling_params", whole_text=True),
)
