"""What a tool format is: how a model of one family writes its tool calls."""

import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pando_worker.server.text.parsers.pieces import TextParser
from pando_worker.server.text.parsers.tools import Tool

_ALPHABET = string.ascii_letters + string.digits


class CallGrammar(Protocol):
    def __call__(
        self, tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool
    ) -> str:
        """Lark rules, two of which are for use by others: `calls` matches one call, or any number
        from one on if `parallel`; `text_or_calls` matches any text whose calls, if there are any,
        are of these tools."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    name: str
    # Texts that a model may have as special tokens. A detokenizer leaves special tokens out, but
    # the parser must see these.
    markers: tuple[str, ...]
    new_parser: Callable[[Sequence[Tool], Callable[[], str]], TextParser]
    grammar: CallGrammar
    new_id: Callable[[], str]
    beside_json: bool  # a call can be told from an answer in JSON by its first character

    def parser(self, tools: Sequence[Tool]) -> TextParser:
        """For one output of a request with these tools."""
        return self.new_parser(tools, self.new_id)


def long_id() -> str:
    """As OpenAI's."""
    return "call_" + random_id(24)


def random_id(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
