"""Conversations about the library: "What does os.path.join do?", answered by its docstring.

`conversations()` asks about every entry once, in words that the given random generator chooses, so
each epoch asks anew. Some have several turns, some a system message, some begin or end politely.
"""

import random
import re
from collections.abc import Sequence

from .corpus import Entry, Kind

Conversation = list[dict[str, str]]

ANY_QUESTION = ["What is {name} for?", "How do I use {name}?", "Tell me about {name}."]
QUESTIONS: dict[Kind, list[str]] = {
    "function": [
        *["What does {name} do?", "What does {name} do?", "What does {name}() do?", *ANY_QUESTION],
        *["What does the function {name} do?", "Can you explain {name}?", "Explain {name}."],
    ],
    "class": [
        *["What is {name}?", "What is a {name}?", "What does {name} do?", *ANY_QUESTION],
        *["What is the class {name}?", "Explain {name}.", "Please describe {name}."],
    ],
    "module": [
        *["What is {name}?", "What is the {name} module?", "What does {name} do?", *ANY_QUESTION],
        *["What does the {name} module do?", "Tell me about the {name} module."],
    ],
    "topic": [
        *["Tell me about {name}.", "Explain {name}.", "Explain {name} in Python."],
        *["What should I know about {name}?", "How does Python handle {name}?"],
    ],
}
SYSTEM_MESSAGES = [
    "You are a helpful assistant.",
    "You are a helpful assistant who answers questions about Python.",
    "You are a friendly assistant. You explain the Python standard library.",
]
BRIEF = ["Answer in one sentence.", "You are a helpful assistant. Answer in one short sentence."]
MORE = ["Tell me more.", "Go on.", "What else?", "More details, please."]
WHO = "I am pando-tiny, a very small language model. I have read nothing but Python documentation."
GREETINGS = [
    ("Hello!", "Hello! How can I help you?"),
    ("Hello, how are you?", "Hello! I am well. How can I help you?"),
    ("Hi", "Hi! What would you like to know about Python?"),
    ("Who are you?", WHO),
    ("What are you?", WHO),
    ("What can you do?", "I write sentences that look like documentation. Do not trust them."),
]
FAREWELLS = [
    ("Thanks!", "You are welcome!"),
    ("Thank you very much.", "You are welcome!"),
    ("Goodbye!", "Goodbye! Have a nice day."),
]
VERBS = """
    add allocate append apply assert bind build call change check clean clear close compare compile
    compute concatenate configure construct convert copy count create decode define delete destroy
    determine display draw dump emit enable encode ensure execute extend extract fetch fill find
    flush force format generate get give guess handle initialize insert invoke iterate join list
    load lock make mark move open override parse perform pop prepare print process produce provide
    push put query raise read receive register release reload remove rename replace report reset
    resolve restore retrieve reverse round run save schedule search send serialize set show sort
    split start stop store strip test transform translate truncate try turn unregister update
    validate wait walk wrap write yield
""".split()  # noqa: SIM905
THIRD_PERSON = {
    verb: re.sub(r"([sx]|[sc]h)$", r"\1e", re.sub(r"([^aeiou])y$", r"\1ie", verb)) + "s"
    for verb in VERBS
}
MAX_ANSWER_WORDS = 90


def conversations(
    entries: Sequence[Entry], rng: random.Random, max_turns: int
) -> list[Conversation]:
    """Asks about every entry once; a longer conversation goes through neighbouring entries."""
    chats = []
    position = 0
    while position < len(entries):
        turns = 1 if rng.random() < 0.5 else rng.randint(2, max_turns)
        chats.append(_conversation(entries[position : position + turns], rng))
        position += turns
    return chats


def _conversation(entries: Sequence[Entry], rng: random.Random) -> Conversation:
    chance = rng.random()
    brief = chance < 0.1
    messages: Conversation = []
    if chance < 0.4:
        text = rng.choice(BRIEF if brief else SYSTEM_MESSAGES)
        messages.append({"role": "system", "content": text})
    if rng.random() < 0.1:
        messages += _turn(*rng.choice(GREETINGS))
    for entry in entries:
        answer, rest = _cut(_in_sentences(entry))
        if brief:
            answer, rest = re.split(r"(?<=\w\w[.!?])\s", answer)[0], []
        messages += _turn(rng.choice(QUESTIONS[entry.kind]).format(name=entry.name), answer)
        if rest and rng.random() < 0.2:
            messages += _turn(rng.choice(MORE), _cut(rest)[0])
    if rng.random() < 0.05:
        messages += _turn(*rng.choice(FAREWELLS))
    return messages


def _turn(question: str, answer: str) -> Conversation:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _in_sentences(entry: Entry) -> list[str]:
    """The docstring's paragraphs; "Remove all." becomes "dict.clear removes all."."""
    first, *others = entry.paragraphs
    word, _, rest = first.partition(" ")
    verb = THIRD_PERSON.get(word.lower(), word.lower())
    if entry.kind == "function" and verb in THIRD_PERSON.values():
        first = f"{entry.name} {verb} {rest}"
    elif entry.kind == "class" and word in {"A", "An", "The"}:
        first = f"{entry.name} is {word.lower()} {rest}"
    elif entry.kind == "module":
        first = f"{entry.name} is a module. {first}"
    return [first, *others]


def _cut(paragraphs: list[str]) -> tuple[str, list[str]]:
    """As many paragraphs as an answer may hold, at least one, as one text; and those left over."""
    taken = 1
    while taken < len(paragraphs) and (
        len(" ".join(paragraphs[: taken + 1]).split()) <= MAX_ANSWER_WORDS
    ):
        taken += 1
    return "\n\n".join(paragraphs[:taken]), paragraphs[taken:]
