"""`ToolFormat`: how the models of one family write tool calls."""

import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pando_worker.parsers.beside import CallsOrAnswer
from pando_worker.parsers.pieces import TextParser
from pando_worker.parsers.tools import Tool

_ALPHABET = string.ascii_letters + string.digits


class CallGrammar(Protocol):
    def __call__(
        self, tools: Sequence[Tool], special_tokens: Mapping[str, int], *, parallel: bool
    ) -> str:
        """Lark rules, two of which are public: `calls` matches one call, or one or more if
        `parallel`; `text_or_calls` matches any text whose calls, if any, are of these tools."""
        ...


class ShowTools(Protocol):
    def __call__(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        template: str,
    ) -> list[dict[str, Any]]:
        """The conversation with its tools, calls and results as text, for a chat template that
        shows none of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    name: str
    help: str  # what a call looks like, as Markdown
    models: str  # whose chat templates show it
    speaks: Callable[[str], bool]  # whether a chat template shows it
    # Texts that may be special tokens of a model. The detokenizer omits special tokens, but the
    # parser needs these.
    markers: tuple[str, ...]
    new_parser: Callable[[Sequence[Tool], Callable[[], str]], TextParser]
    grammar: CallGrammar
    new_id: Callable[[], str]
    # With one of which the grammar's calls begin; None: with the first marker.
    begins_with: Callable[[Sequence[Tool]], Sequence[str]] | None = None
    before_answer: str = ""  # what an answer begins with that is no call
    # Calls are objects with `name` and `parameters` and nothing around, so that only more than the
    # first character distinguishes a call from an answer in JSON.
    bare_objects: bool = False
    # Only of a format that the model was not trained on: how it learns of the tools. Its calls are
    # always constrained to their schemas.
    show_tools: ShowTools | None = None
    parallel: bool = True  # whether an output may have several calls if the request leaves it open

    def begins(self, tools: Sequence[Tool]) -> Sequence[str]:
        return self.markers[:1] if self.begins_with is None else self.begins_with(tools)

    def parser(self, tools: Sequence[Tool], *, is_shaped: bool = False) -> TextParser:
        """A new parser for one output of a request with these tools.

        Args:
            is_shaped: whether an answer without calls has a grammar of its own
        """
        calls = self.new_parser(tools, self.new_id)
        return CallsOrAnswer(self.begins(tools), calls) if is_shaped else calls


def long_id() -> str:
    """As OpenAI's."""
    return "call_" + random_id(24)


def random_id(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
