"""All tool and reasoning formats by name, and which of them a chat template uses."""

from collections.abc import Callable

from pando_worker.server.text.parsers.formats import ToolFormat
from pando_worker.server.text.parsers.hermes import HERMES
from pando_worker.server.text.parsers.llama3 import LLAMA3
from pando_worker.server.text.parsers.mistral import MISTRAL
from pando_worker.server.text.parsers.qwen3_coder import QWEN3_CODER
from pando_worker.server.text.parsers.reasoning import DEEPSEEK_R1, QWEN3, ReasoningFormat

TOOL_FORMATS = {form.name: form for form in (HERMES, LLAMA3, MISTRAL, QWEN3_CODER)}
REASONING_FORMATS = {form.name: form for form in (QWEN3, DEEPSEEK_R1)}

_OTHERS_IN_THE_TAG = ("<function=", "<arg_key>")  # the XML of Qwen3-Coder and GLM


def _speaks_llama3(template: str) -> bool:
    """Llama 3.2's template shows the object, but not the token."""
    shows_object = "<|start_header_id|>" in template and '"parameters"' in template
    return "<|python_tag|>" in template or (shows_object and "<tool_call>" not in template)


_SPEAKS: list[tuple[ToolFormat, Callable[[str], bool]]] = [
    (HERMES, lambda t: "<tool_call>" in t and not any(tag in t for tag in _OTHERS_IN_THE_TAG)),
    (QWEN3_CODER, lambda t: all(tag in t for tag in ("<tool_call>", "<function=", "<parameter="))),
    (MISTRAL, lambda t: "[TOOL_CALLS]" in t),
    (LLAMA3, _speaks_llama3),
]
_DEEPSEEK_ROLE = "<\uff5cAssistant\uff5c>"


def tool_format(name: str, template: str | None) -> ToolFormat | None:
    """The format for the setting `tool_call_parser`: a format's name, "none", or "auto" for the one
    that the model's chat template shows; None if it shows several."""
    if name != "auto":
        return TOOL_FORMATS.get(name)
    template = template or ""
    found = [form for form, speaks in _SPEAKS if speaks(template)]
    return found[0] if len(found) == 1 else None


def reasoning_format(name: str, template: str | None) -> ReasoningFormat | None:
    """The format for the setting `reasoning_parser`; see `tool_format`."""
    if name != "auto":
        return REASONING_FORMATS.get(name)
    if template is None or "</think>" not in template:
        return None
    return DEEPSEEK_R1 if _DEEPSEEK_ROLE in template else QWEN3
