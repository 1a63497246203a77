"""Generated questions, each with three tools, one of which fits. A seed gives the same ones."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]

_CITIES = ("Rome", "Ulm", "Lagos", "Kyoto", "Lima", "Oslo", "Cairo", "Perth")
_PEOPLE = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald")
_WORDS = ("harbour", "lantern", "orchard", "thunder", "meadow", "glacier")
_LANGUAGES = ("French", "Japanese", "Swahili", "Polish")
_NUMBERS = tuple(str(number) for number in range(3, 60, 7))


@dataclass(frozen=True, slots=True)
class _Kind:
    """A tool, and questions that it fits; {a} and {b} are replaced."""

    name: str
    description: str
    properties: dict[str, Schema]
    questions: tuple[str, ...]
    a: Sequence[str]
    b: Sequence[str] = ("",)


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    fitting: str  # a tool's name
    tools: tuple[dict[str, Any], ...]  # as in a chat request


_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}

_KINDS = (
    _Kind(
        "get_weather",
        "Weather in a city",
        {"city": _TEXT, "unit": {"enum": ["celsius", "fahrenheit"]}},
        ("What is the weather in {a}?", "Is it raining in {a} today?"),
        _CITIES,
    ),
    _Kind(
        "get_time",
        "Current time in a city",
        {"city": _TEXT},
        ("What time is it in {a}?", "Tell me the current time in {a}."),
        _CITIES,
    ),
    _Kind(
        "send_email",
        "Send an email to a person",
        {"to": _TEXT, "subject": _TEXT, "urgent": {"type": "boolean"}},
        ("Write an email to {a} about the {b}.", "Send {a} an email on the {b}."),
        _PEOPLE,
        _WORDS,
    ),
    _Kind(
        "translate",
        "Translate a text into another language",
        {"text": _TEXT, "language": _TEXT},
        ("Translate '{a}' into {b}.", "How do you say '{a}' in {b}?"),
        _WORDS,
        _LANGUAGES,
    ),
    _Kind(
        "add_numbers",
        "Add two numbers",
        {"first": _NUMBER, "second": _NUMBER},
        ("What is {a} plus {b}?", "Add {a} and {b}."),
        _NUMBERS,
        _NUMBERS,
    ),
    _Kind(
        "set_timer",
        "Set a timer for some minutes",
        {"minutes": {"type": "integer", "minimum": 1, "maximum": 240}},
        ("Set a timer for {a} minutes.", "Wake me in {a} minutes."),
        _NUMBERS,
    ),
    _Kind(
        "book_flight",
        "Book a flight between two cities",
        {"origin": _TEXT, "destination": _TEXT, "passengers": _INTEGER},
        ("Book a flight from {a} to {b}.", "I want to fly from {a} to {b}."),
        _CITIES,
        _CITIES[::-1],
    ),
    _Kind(
        "create_event",
        "Put an event into the calendar",
        {"title": _TEXT, "people": {"type": "array", "items": _TEXT, "maxItems": 3}},
        ("Put a meeting with {a} into my calendar.", "Schedule lunch with {a}."),
        _PEOPLE,
    ),
    _Kind(
        "get_stock_price",
        "Price of a company's stock",
        {"symbol": {"type": "string", "pattern": "^[A-Z]{1,5}$"}},
        ("What does the stock of {a} cost?", "How is the {a} share price?"),
        ("Apple", "Nvidia", "Siemens", "Toyota"),
    ),
    _Kind(
        "convert_currency",
        "Convert an amount of money",
        {
            "amount": _NUMBER,
            "pair": {
                "type": "object",
                "properties": {
                    "source": {"enum": ["EUR", "USD", "JPY"]},
                    "target": {"enum": ["EUR", "USD", "JPY"]},
                },
                "required": ["source", "target"],
            },
        },
        ("How many dollars are {a} euros?", "Convert {a} yen to euros."),
        _NUMBERS,
    ),
    _Kind(
        "play_music",
        "Play a song",
        {"song": _TEXT, "volume": {"type": "integer", "minimum": 0, "maximum": 10}},
        ("Play the song '{a}'.", "I want to hear '{a}'."),
        _WORDS,
    ),
    _Kind(
        "define_word",
        "Look up a word in a dictionary",
        {"word": _TEXT},
        ("What does the word '{a}' mean?", "Define '{a}'."),
        _WORDS,
    ),
)


def questions(number: int, seed: int) -> list[Question]:
    draw = random.Random(seed)
    return [_question(draw) for _ in range(number)]


def _question(draw: random.Random) -> Question:
    kind, *others = draw.sample(_KINDS, 3)
    offered = [kind, *others]
    draw.shuffle(offered)
    text = draw.choice(kind.questions).format(a=draw.choice(kind.a), b=draw.choice(kind.b))
    return Question(text, kind.name, tuple(map(_tool, offered)))


def _tool(kind: _Kind) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": kind.properties,
        "required": list(kind.properties),
        "additionalProperties": False,
    }
    function = {"name": kind.name, "description": kind.description, "parameters": parameters}
    return {"type": "function", "function": function}
