"""All tool and reasoning formats by name, and which of them a chat template speaks."""

from pando_worker.server.parsers.formats import ToolFormat
from pando_worker.server.parsers.hermes import HERMES
from pando_worker.server.parsers.llama3 import LLAMA3
from pando_worker.server.parsers.mistral import MISTRAL
from pando_worker.server.parsers.reasoning import DEEPSEEK_R1, QWEN3, ReasoningFormat

TOOL_FORMATS = {form.name: form for form in (HERMES, LLAMA3, MISTRAL)}
REASONING_FORMATS = {form.name: form for form in (QWEN3, DEEPSEEK_R1)}

_DEEPSEEK_ROLE = "<\uff5cAssistant\uff5c>"


def tool_format(name: str, template: str | None) -> ToolFormat | None:
    """By the setting `tool_call_parser`: a format's name, "none", or "auto" to look for what the
    model's chat template shows of it."""
    if name != "auto":
        return TOOL_FORMATS.get(name)
    template = template or ""
    if "<function=" in template:  # XML within the same tag, which no format here reads
        return None
    if "<tool_call>" in template:
        return HERMES
    if "[TOOL_CALLS]" in template:
        return MISTRAL
    return LLAMA3 if "<|python_tag|>" in template else None


def reasoning_format(name: str, template: str | None) -> ReasoningFormat | None:
    """By the setting `reasoning_parser`, as `tool_format`."""
    if name != "auto":
        return REASONING_FORMATS.get(name)
    if template is None or "</think>" not in template:
        return None
    return DEEPSEEK_R1 if _DEEPSEEK_ROLE in template else QWEN3
