"""All tool and reasoning formats by name, and which of them a chat template uses."""

import re
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from pando_fleet.choices import by_name
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.hermes import HERMES
from pando_worker.parsers.llama3 import LLAMA3
from pando_worker.parsers.mistral import MISTRAL
from pando_worker.parsers.qwen3_coder import QWEN3_CODER
from pando_worker.parsers.reasoning import DEEPSEEK_R1, QWEN3, ReasoningFormat

TOOL_FORMATS = by_name(HERMES, LLAMA3, MISTRAL, QWEN3_CODER)
REASONING_FORMATS = by_name(QWEN3, DEEPSEEK_R1)


class Spoken(Protocol):
    @property
    def speaks(self) -> Callable[[str], bool]: ...


SpokenT = TypeVar("SpokenT", bound=Spoken)


def tool_format(name: str, template: str | None) -> ToolFormat | None:
    """The format for the setting `tool_call_parser`: a format's name, "none", or "auto" for the one
    that the model's chat template shows; None if it shows several."""
    return _chosen(TOOL_FORMATS, name, template)


def shows_tools(template: str | None) -> bool:
    """Whether a chat template puts the request's tools into the prompt."""
    return re.search(r"\btools\b", template or "") is not None


def reasoning_format(name: str, template: str | None) -> ReasoningFormat | None:
    """The format for the setting `reasoning_parser`; see `tool_format`."""
    return _chosen(REASONING_FORMATS, name, template)


def _chosen(formats: Mapping[str, SpokenT], name: str, template: str | None) -> SpokenT | None:
    if name != "auto":
        return formats.get(name)
    found = [form for form in formats.values() if form.speaks(template or "")]
    return found[0] if len(found) == 1 else None
