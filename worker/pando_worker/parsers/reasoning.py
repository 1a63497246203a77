"""Separates reasoning, which models write between two tags before they answer, from the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from pando_worker.parsers.families import gpt_oss
from pando_worker.parsers.harmony import HarmonyParser
from pando_worker.parsers.pieces import Content, Piece, Reasoning, TextParser
from pando_worker.parsers.scanning import BLANKS, MAX_BLANKS, Until

TAIL_TOKENS = 16
"""The number of a prompt's last tokens that `ReasoningFormat.start` needs."""


class Start(Enum):
    """Where an output begins in relation to the reasoning."""

    INSIDE = auto()  # the prompt has opened the reasoning
    MAY_OPEN = auto()  # the model may open it
    ANSWER = auto()  # the prompt has closed it, so that the model does not reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    name: str
    help: str
    speaks: Callable[[str], bool]  # whether a chat template shows it
    # DeepSeek-R1's outputs begin within the reasoning even without an opening tag.
    always: bool
    opening: str = "<think>"
    closing: str = "</think>"
    after: str = ""  # what follows `closing` before the answer or a call
    before_text: str = ""  # what precedes an answer that is no call
    tokens: tuple[str, ...] = ()  # other special tokens that the parser needs
    new_parser: "Callable[[ReasoningFormat, Start], TextParser]" = lambda form, start: (
        ReasoningParser(form, start)
    )

    @property
    def markers(self) -> tuple[str, ...]:
        """Like `ToolFormat.markers`: the parser needs them even if they are special tokens."""
        return (self.opening, self.closing, *self.tokens)

    def start(self, prompt_end: str) -> Start:
        """Decided by the end of the rendered prompt, special tokens included (the text of its last
        TAIL_TOKENS tokens): some chat templates open the reasoning, and close it if the request
        disables it."""
        end = prompt_end.rstrip()
        if end.endswith(self.opening):
            return Start.INSIDE
        if end.endswith(self.closing):
            return Start.ANSWER
        return Start.INSIDE if self.always else Start.MAY_OPEN

    def parser(self, start: Start) -> TextParser:
        return self.new_parser(self, start)


class ReasoningParser:
    """Emits `Reasoning`, then `Content`. White space around the tags belongs to neither."""

    def __init__(self, form: ReasoningFormat, start: Start) -> None:
        self._opening = form.opening
        self._inside = Until(form.closing)
        self._may_be_answer = start is Start.MAY_OPEN
        self._unread = ""
        self._step = self._read_answer if start is Start.ANSWER else self._read_opening
        self._pieces: list[Piece] = []

    def push(self, text: str) -> list[Piece]:
        self._unread += text
        while self._unread and self._step():
            pass
        return self._take()

    def flush(self) -> list[Piece]:
        if self._step == self._read_opening and self._may_be_answer:
            self._add(Content, self._unread)
        else:
            self._add(Reasoning, self._unread.strip(BLANKS))
            self._add(Reasoning, self._inside.flush().rstrip(BLANKS))
        return self._take()

    def _read_opening(self) -> bool:
        """Called even if the prompt has opened it, since some models open it again."""
        text = self._unread.lstrip(BLANKS)
        blanks = len(self._unread) - len(text)
        if self._opening.startswith(text) and text != self._opening and blanks < MAX_BLANKS:
            return False
        if text.startswith(self._opening) and blanks < MAX_BLANKS:
            self._unread = text.removeprefix(self._opening)
            self._step = self._skip_to_reasoning
        else:
            self._step = self._read_answer if self._may_be_answer else self._skip_to_reasoning
        return True

    def _skip_to_reasoning(self) -> bool:
        self._unread = self._unread.lstrip(BLANKS)
        if self._unread:
            self._step = self._read_reasoning
        return True

    def _read_reasoning(self) -> bool:
        before, after = self._inside.push(self._unread)
        self._add(Reasoning, before)
        self._unread = after or ""
        if after is not None:
            self._step = self._skip_to_answer
        return True

    def _skip_to_answer(self) -> bool:
        self._unread = self._unread.lstrip(BLANKS)
        if self._unread:
            self._step = self._read_answer
        return True

    def _read_answer(self) -> bool:
        self._add(Content, self._unread)
        self._unread = ""
        return True

    def _add(self, kind: type[Reasoning] | type[Content], text: str) -> None:
        if text:
            self._pieces.append(kind(text))

    def _take(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces


_CLOSING = "</think>"
_DEEPSEEK_ROLE = "<\uff5cAssistant\uff5c>"

QWEN3 = ReasoningFormat(
    name="qwen3",
    help="between <think> and </think>",
    speaks=lambda template: _CLOSING in template and _DEEPSEEK_ROLE not in template,
    always=False,
)
DEEPSEEK_R1 = ReasoningFormat(
    name="deepseek_r1",
    help="up to </think>, from the output's beginning",
    speaks=lambda template: _CLOSING in template and _DEEPSEEK_ROLE in template,
    always=True,
)
COMMAND_THINKING = ReasoningFormat(
    name="command",
    help="between <|START_THINKING|> and <|END_THINKING|>",
    speaks=lambda template: "<|START_THINKING|>" in template,
    always=False,
    opening="<|START_THINKING|>",
    closing="<|END_THINKING|>",
)
GRANITE_THINKING = ReasoningFormat(
    name="granite",
    help="from 'Here is my thought process:' to 'Here is my response:'",
    speaks=lambda template: "Here is my thought process:" in template,
    always=False,
    opening="Here is my thought process:",
    closing="Here is my response:",
)
MAGISTRAL = ReasoningFormat(
    name="mistral",
    help="between [THINK] and [/THINK]",
    speaks=lambda template: "[THINK]" in template,
    always=False,
    opening="[THINK]",
    closing="[/THINK]",
)
GPT_OSS_CHANNELS = ReasoningFormat(
    name="gpt_oss",
    help="the channel analysis of the harmony format",
    speaks=lambda template: gpt_oss.CHANNEL in template and "analysis" in template,
    always=False,
    opening=f"{gpt_oss.CHANNEL}analysis{gpt_oss.MESSAGE}",
    closing=gpt_oss.END,
    after=f"{gpt_oss.START}assistant",
    before_text=f"{gpt_oss.CHANNEL}final{gpt_oss.MESSAGE}",
    tokens=gpt_oss.TOKENS,
    new_parser=lambda form, start: HarmonyParser(),
)
