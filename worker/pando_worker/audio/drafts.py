"""`Drafts`: answers to windows, kept in case that equal ones come again.

The engine then verifies the answer in one step, instead of making it token by token: what a client
gets is what the model says either way.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

MOST = 4096
"""Answers that are kept: at most 448 tokens of 4 bytes each."""


@dataclass(frozen=True, slots=True)
class Question:
    """What an answer at temperature 0 depends on.

    Attributes:
        namespace: of the caller, who is told no other's answers
        digest: of the window
        prompt: the decoder's
    """

    namespace: bytes
    digest: bytes
    prompt: tuple[int, ...]
    timestamps: bool


class Drafts:
    """The answers used last."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._answers: OrderedDict[Question, array[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, question: Question) -> list[int] | None:
        """Its tokens, the end token among them if that came."""
        if (answer := self._answers.get(question)) is None:
            return None
        self._answers.move_to_end(question)
        return answer.tolist()

    def put(self, question: Question, answer: Sequence[int]) -> None:
        self._answers[question] = array("i", answer)
        self._answers.move_to_end(question)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def clear(self) -> None:
        self._answers.clear()
