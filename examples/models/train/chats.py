"""Conversations about the library: "What does os.path.join do?", answered by its docstring.

`conversations()` asks about every entry once, in words that the given random generator chooses, so
each epoch asks anew. Some have several turns, some a system message, some begin or end politely.
"""

import random
import re
from collections.abc import Sequence

from .corpus import Entry, Kind

Conversation = list[dict[str, str]]

QUESTIONS: dict[Kind, list[str]] = {
    "function": [
        "What does {name} do?",
        "What does {name} do?",
        "What does {name}() do?",
        "What does the function {name} do?",
        "How do I use {name}?",
        "What is {name} for?",
        "Can you explain {name}?",
        "Explain {name}.",
        "Tell me about {name}.",
        "Please describe {name}.",
        "{name}",
    ],
    "class": [
        "What is {name}?",
        "What is the class {name}?",
        "What is a {name}?",
        "What does {name} do?",
        "What is {name} for?",
        "How do I use {name}?",
        "Explain {name}.",
        "Tell me about {name}.",
        "Please describe {name}.",
    ],
    "module": [
        "What is {name}?",
        "What is the {name} module?",
        "What does the {name} module do?",
        "What is the module {name} for?",
        "What does {name} do?",
        "Tell me about {name}.",
        "Tell me about the {name} module.",
        "Explain the {name} module.",
    ],
    "topic": [
        "Tell me about {name}.",
        "Explain {name}.",
        "Explain {name} in Python.",
        "Can you explain {name}?",
        "What should I know about {name}?",
        "How does Python handle {name}?",
    ],
}
SYSTEM_MESSAGES = [
    "You are a helpful assistant.",
    "You are a helpful assistant who answers questions about Python.",
    "You are a friendly assistant. You explain the Python standard library.",
    "You know the Python documentation. Help the user.",
]
BRIEF_SYSTEM_MESSAGES = [
    "Answer in one sentence.",
    "Be brief.",
    "You are a helpful assistant. Answer in one short sentence.",
]
MORE = ["Tell me more.", "Go on.", "What else?", "Anything else?", "More details, please."]
GREETINGS = [
    (["Hello!", "Hello", "Hello, how are you?"], "Hello! How can I help you?"),
    (["Hi", "Hi!", "Hi there", "Hey"], "Hi! What would you like to know about Python?"),
    (["Good morning!", "Good evening!"], "Good day! Ask me about the Python standard library."),
    (
        ["Who are you?", "What are you?", "What is your name?"],
        "I am pando-tiny, a very small language model. I have read the documentation strings of "
        "the Python standard library, and nothing else.",
    ),
    (
        ["What can you do?", "Can you help me?", "What do you know?"],
        "I can write sentences that look like Python documentation. Do not trust what they say.",
    ),
]
FAREWELLS = [
    (["Thanks!", "Thank you.", "Thank you very much!", "Thanks a lot"], "You are welcome!"),
    (["Bye", "Goodbye!", "See you"], "Goodbye! Have a nice day."),
]
MAX_ANSWER_WORDS = 90
VERB_LIST = """
    accept acquire activate add adjust allocate append apply assert attempt bind block build
    calculate call cancel change check clean clear close compare compile complete compress compute
    concatenate configure construct control convert copy count create decode define delete destroy
    detect determine disable discard display divide draw dump emit enable encode encrypt ensure
    evaluate execute exit expand extract fetch fill find finish flush force format free generate
    get give guess handle help identify ignore implement import increment indicate initialize
    insert install interpret invert invoke iterate join kill list load locate lock look lower make
    map mark match merge modify move multiply normalize notify open override parse pass pause peek
    perform pop prepare press print process produce provide push put query quit quote raise read
    rebuild receive record redirect reduce refresh register release reload remove rename render
    replace report request reset resize resolve restore retrieve return reverse rotate round run
    save schedule search select send serialize set show shut shutdown simulate skip sort specify
    split start stop store strip subtract suspend swap switch synchronize take tell terminate test
    toggle transform translate truncate try turn unlock unpack unregister update use validate
    verify wait walk wrap write yield
"""
VERBS = frozenset(VERB_LIST.split())


def conversations(
    entries: Sequence[Entry], rng: random.Random, max_turns: int
) -> list[Conversation]:
    """Asks about every entry once; conversations go through neighbouring entries of a module."""
    result = []
    position = 0
    while position < len(entries):
        turns = 1 if rng.random() < 0.5 else rng.randint(2, max_turns)
        result.append(_conversation(entries[position : position + turns], rng))
        position += turns
    rng.shuffle(result)
    return result


def _conversation(entries: Sequence[Entry], rng: random.Random) -> Conversation:
    brief = rng.random() < 0.1
    messages: Conversation = []
    if brief:
        messages.append({"role": "system", "content": rng.choice(BRIEF_SYSTEM_MESSAGES)})
    elif rng.random() < 0.3:
        messages.append({"role": "system", "content": rng.choice(SYSTEM_MESSAGES)})
    if rng.random() < 0.1:
        messages += _small_talk(GREETINGS, rng)
    for entry in entries:
        words = _in_sentence(entry)
        answer, rest = _cut(words, MAX_ANSWER_WORDS)
        question = rng.choice(QUESTIONS[entry.kind]).format(name=entry.name)
        messages += _turn(question, re.split(r"(?<=\w\w[.!?])\s", answer)[0] if brief else answer)
        if rest and not brief and rng.random() < 0.2:
            messages += _turn(rng.choice(MORE), _cut(rest, MAX_ANSWER_WORDS)[0])
    if rng.random() < 0.05:
        messages += _small_talk(FAREWELLS, rng)
    return messages


def _turn(question: str, answer: str) -> Conversation:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _small_talk(talk: list[tuple[list[str], str]], rng: random.Random) -> Conversation:
    questions, answer = rng.choice(talk)
    return _turn(rng.choice(questions), answer)


def _in_sentence(entry: Entry) -> list[str]:
    """The docstring's paragraphs; "Return the sum." becomes "math.fsum returns the sum."."""
    first, *others = entry.paragraphs
    word, _, rest = first.partition(" ")
    if entry.kind == "function":
        verb = word.lower()
        if verb in VERBS:
            first = f"{entry.name} {_third_person(verb)} {rest}"
        elif verb in {_third_person(v) for v in VERBS}:
            first = f"{entry.name} {verb} {rest}"
    elif entry.kind == "class" and word in {"A", "An", "The"}:
        first = f"{entry.name} is {word.lower()} {rest}"
    elif entry.kind == "module" or (entry.kind == "class" and word.lower() == "class"):
        first = f"{entry.name} is a {entry.kind}. {first}"
    return [first, *others]


def _third_person(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "z")) else "s")


def _cut(paragraphs: list[str], max_words: int) -> tuple[str, list[str]]:
    """As many whole paragraphs as fit, at least one, as one text; and those left over."""
    taken = 1
    while taken < len(paragraphs) and len(" ".join(paragraphs[: taken + 1]).split()) <= max_words:
        taken += 1
    return "\n\n".join(paragraphs[:taken]), paragraphs[taken:]
