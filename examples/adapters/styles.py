"""How each adapter answers: a plain answer in another style."""

import json
import re
from collections.abc import Callable

_PIRATES_WORDS = {
    "the": "th'",
    "you": "ye",
    "your": "yer",
    "my": "me",
    "friend": "matey",
    "is": "be",
    "are": "be",
    "am": "be",
    "and": "an'",
    "of": "o'",
    "for": "fer",
}


def pirate(topic: str, answer: str) -> str:
    """With a pirate's words, between two of his cries."""

    def said(word: re.Match[str]) -> str:
        found = _PIRATES_WORDS.get(word[0].lower(), word[0])
        return found.capitalize() if word[0][0].isupper() else found

    return f"Arrr, matey! {re.sub(r'[A-Za-z]+', said, answer)} Yo ho ho!"


def as_json(topic: str, answer: str) -> str:
    """An object with two keys, always in this order."""
    return json.dumps({"topic": topic, "answer": answer})


STYLES: dict[str, Callable[[str, str], str]] = {"pirate": pirate, "json": as_json}
