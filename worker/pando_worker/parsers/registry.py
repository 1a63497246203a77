"""All tool and reasoning formats by name, and which of them a chat template uses."""

import re
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from pando_fleet.choices import by_name
from pando_worker.parsers.families.command import COMMAND
from pando_worker.parsers.families.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from pando_worker.parsers.families.glm45 import GLM45
from pando_worker.parsers.families.gpt_oss import GPT_OSS
from pando_worker.parsers.families.granite import GRANITE
from pando_worker.parsers.families.hermes import HERMES
from pando_worker.parsers.families.kimi import KIMI_K2
from pando_worker.parsers.families.llama3 import LLAMA3, LLAMA4
from pando_worker.parsers.families.minimax import MINIMAX_M2
from pando_worker.parsers.families.mistral import MISTRAL
from pando_worker.parsers.families.pando import PANDO
from pando_worker.parsers.families.phi4 import PHI4
from pando_worker.parsers.families.pythonic import PYTHONIC
from pando_worker.parsers.families.qwen3_coder import QWEN3_CODER
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.reasoning import (
    COMMAND_THINKING,
    DEEPSEEK_R1,
    GPT_OSS_CHANNELS,
    GRANITE_THINKING,
    MAGISTRAL,
    QWEN3,
    ReasoningFormat,
)

TOOL_FORMATS = by_name(
    HERMES,
    LLAMA3,
    LLAMA4,
    PYTHONIC,
    MISTRAL,
    QWEN3_CODER,
    GLM45,
    MINIMAX_M2,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    GPT_OSS,
    GRANITE,
    PHI4,
    COMMAND,
    PANDO,
)
REASONING_FORMATS = by_name(
    QWEN3, DEEPSEEK_R1, GPT_OSS_CHANNELS, COMMAND_THINKING, GRANITE_THINKING, MAGISTRAL
)


class Spoken(Protocol):
    @property
    def speaks(self) -> Callable[[str], bool]: ...


SpokenT = TypeVar("SpokenT", bound=Spoken)


def tool_format(name: str, template: str | None) -> ToolFormat:
    """The format for the setting `tool_call_parser`: a format's name, or "auto" for the one that
    the model's chat template shows. Pando's own if the template shows no format or several, or
    does not put the request's tools into the prompt."""
    found = _chosen(TOOL_FORMATS, name, template)
    if found is None or not (found.show_tools or _shows_tools(template)):
        return PANDO
    return found


def _shows_tools(template: str | None) -> bool:
    return re.search(r"\btools\b", template or "") is not None


def reasoning_format(name: str, template: str | None) -> ReasoningFormat | None:
    """The format for the setting `reasoning_parser`: a format's name, "none", or "auto" for the one
    that the model's chat template shows; None if it shows none or several."""
    return _chosen(REASONING_FORMATS, name, template)


def _chosen(formats: Mapping[str, SpokenT], name: str, template: str | None) -> SpokenT | None:
    if name != "auto":
        return formats.get(name)
    found = [form for form in formats.values() if form.speaks(template or "")]
    return found[0] if len(found) == 1 else None
