"""The demo's load: assistants with long system prompts, several users each, several turns each.

The system prompts are the beginnings of the standard library's documentation: real texts of
different kinds, the same on every run with the same version of Python.
"""

import importlib
import pydoc
import random
from dataclasses import dataclass

MODULES = (
    "argparse",
    "csv",
    "difflib",
    "doctest",
    "heapq",
    "json",
    "pickle",
    "random",
    "socket",
    "statistics",
    "textwrap",
    "zipfile",
)
SYSTEM_PROMPT_CHARS = 3000
USERS = 3  # of each assistant
QUESTIONS = (
    "What is it for, in one sentence?",
    "Which function should I look at first?",
    "What must I take care of when I use it?",
)


@dataclass(frozen=True, slots=True)
class Conversation:
    system: str
    questions: tuple[str, ...]


def conversations() -> list[Conversation]:
    """All users' conversations, in an order that mixes the assistants; the same every time."""
    result = []
    for module in MODULES:
        documentation = pydoc.plain(pydoc.render_doc(importlib.import_module(module)))
        system = f"You answer questions about the Python module {module}.\n{documentation}"
        for user in range(USERS):
            first, *rest = QUESTIONS
            questions = (f"I am user {user + 1} of {module}. {first}", *rest)
            result.append(Conversation(system[:SYSTEM_PROMPT_CHARS], questions))
    random.Random(0).shuffle(result)
    return result
