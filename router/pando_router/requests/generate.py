"""/generate, SGLang's."""

from typing import Any

import msgspec

from pando_router.errors import bad_request
from pando_router.requests.fields import count, deterministic, priority, text
from pando_router.requests.plain import prompted
from pando_router.requests.request import Request


class GenerateBody(msgspec.Struct, gc=False):
    model: str | None = None
    text: Any = None
    input_ids: Any = None
    sampling_params: Any = None
    stream: Any = None
    priority: Any = None
    lora_path: Any = None
    extra_key: Any = None
    cache_salt: Any = None


_decode = msgspec.json.Decoder(GenerateBody).decode


def generate(body: bytes) -> Request:
    fields = _decode(body)
    if (fields.text is None) == (fields.input_ids is None):
        raise bad_request("give either 'text' or 'input_ids'", "text")
    # Several prompts may have a list of these: then nothing is known of the answers.
    sampling = fields.sampling_params if isinstance(fields.sampling_params, dict) else {}
    request = Request(
        model=fields.model,
        max_tokens=count(sampling.get("max_new_tokens")),
        stream=fields.stream is True,
        n=count(sampling.get("n")) or 1,
        deterministic=deterministic(sampling.get("temperature"), sampling.get("sampling_seed")),
        priority=priority(fields.priority),
        cache_salt=_salt(fields.cache_salt, fields.extra_key, fields.lora_path),
    )
    if fields.text is not None:
        return prompted(request, fields.text, "text")
    return prompted(request, fields.input_ids, "input_ids")


def _salt(*names: Any) -> str:
    """What each makes a name space of its own; one alone stands for itself."""
    given = [text(name) or "" for name in names]
    return given[0] if not any(given[1:]) else msgspec.json.encode(given).decode()
