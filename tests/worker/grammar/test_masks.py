"""Masks compared with brute force: a token is allowed if some text of the language continues with
it."""

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.grammar.masks import MaskThreads
from tests.examples import examples
from tests.waiting import PATIENCE_S
from tests.worker.grammar.world import World

TEXTS = st.text(alphabet='ab t\n"é世🙂', max_size=6)


@given(texts=st.lists(TEXTS.filter(bool), min_size=1, max_size=5, unique=True), data=st.data())
@settings(max_examples=examples(25))
def test_a_token_is_allowed_where_a_text_of_the_language_goes_on_with_it(
    world: World, texts: list[str], data: st.DataObject
) -> None:
    language = [text.encode() for text in texts]
    grammar = world.grammar(guided_choice=texts)
    said = b""
    while True:
        left = [text for text in language if text.startswith(said)]
        possible = {
            id
            for id, spelled in world.spelled.items()
            if any(text.startswith(said + spelled) for text in left)
        }
        if said in language:
            possible |= set(world.eos)
        allowed = world.allowed(grammar)
        is_forced = said not in language and len({text[len(said)] for text in left}) == 1
        assert allowed == possible or (is_forced and allowed and allowed < possible)
        assert grammar.is_finished == (left == [said])
        for token in data.draw(st.sets(st.integers(0, world.compiler.vocab_size - 1), max_size=3)):
            if token not in possible:
                assert not grammar.accept(token)
        token = data.draw(st.sampled_from(sorted(allowed)))
        assert grammar.accept(token)
        if token in world.eos:
            assert grammar.is_finished
            assert not grammar.accept(token)
            return
        said += world.spelled[token]


@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z]+@[a-z]+\.(com|org)",
        r"-?(0|[1-9][0-9]*)(\.[0-9]{1,3})?",
        r"(the |quick |brown )*(fox|dog)",
        r'"([^"\\]|\\["\\])*"',
        r"(a|ab|abc)(c|bc)?",
    ],
)
def test_masks_of_a_regex_equal_partial_matches(byte_level: World, pattern: str) -> None:
    rng = random.Random(pattern)
    grammar = byte_level.grammar(regex=pattern)
    ascii_tokens = {id: text.decode() for id, text in byte_level.spelled.items() if text.isascii()}
    said = ""
    for _ in range(25):
        possible = {
            id
            for id, text in ascii_tokens.items()
            if regex.fullmatch(pattern, said + text, partial=True)
        }
        if regex.fullmatch(pattern, said):
            possible |= set(byte_level.eos)
        allowed = {id for id in byte_level.allowed(grammar) if id in possible or id in ascii_tokens}
        forced = {ascii_tokens[id][0] for id in possible if id in ascii_tokens}
        assert allowed == possible or (len(forced) == 1 and allowed and allowed < possible)
        tokens = sorted(allowed - set(byte_level.eos))
        if not tokens:
            break
        token = rng.choice(tokens)
        assert grammar.accept(token)
        said += ascii_tokens[token]


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 5},
            "age": {"type": "integer", "minimum": 7, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "boolean"}, "minItems": 1}]},
    {
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
        "$ref": "#/$defs/tree",
    },
    {"type": "string", "format": "date"},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_outputs_drawn_under_the_masks_follow_the_json_schema(
    byte_level: World, schema: dict[str, Any]
) -> None:
    rng = random.Random(0)
    complete = 0
    for _ in range(8):
        grammar = byte_level.grammar(guided_json=schema)
        said = b""
        for _ in range(120):
            allowed = byte_level.allowed(grammar)
            ends = sorted(allowed & set(byte_level.eos))
            token = ends[0] if ends else rng.choice(sorted(allowed))
            assert grammar.accept(token)
            if token in byte_level.eos:
                value = json.loads(said)
                jsonschema.validate(
                    value, schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
                )
                complete += 1
                break
            said += byte_level.spelled[token]
    assert complete >= 2


@pytest.mark.parametrize("count", [1, 3, 40])
def test_masks_that_threads_fill_are_the_same(byte_level: World, count: int) -> None:
    texts = ["", "the", "fox", "a", '{"na']
    constraints: list[dict[str, Any]] = [
        {"guided_json": SCHEMAS[1]},
        {"regex": "(the |a )*fox"},
        {"response_format": {"type": "json_object"}},
    ]
    grammars = [byte_level.grammar(**constraints[index % 3]) for index in range(count)]
    for index, grammar in enumerate(grammars):
        for byte in texts[index % 5].encode():
            grammar.accept(byte_level.id(chr(byte)))
    rows = list(range(0, 2 * count, 2))
    masks = np.full((2 * count, -(-byte_level.compiler.vocab_size // 32)), -1, dtype=np.int32)
    alone = masks.copy()
    MaskThreads(2).fill(list(zip(grammars, rows, strict=True)), masks)
    for grammar, row in zip(grammars, rows, strict=True):
        grammar.fill_mask(alone[row])
    assert np.array_equal(masks, alone)


def test_a_grammar_that_fails_allows_nothing_and_fails_alone(byte_level: World) -> None:
    """Every prefix of its text is ambiguous in as many ways as there are rules."""
    rules = "\n".join(f'r{i}: "a" r{i} | "a"' for i in range(2100))
    failing = byte_level.compiler.compile(
        f"start: A A A A ({' | '.join(f'r{i}' for i in range(2100))})\nA: /[ab]/\n{rules}"
    ).result(timeout=PATIENCE_S)
    others = [byte_level.grammar(regex="a*") for _ in range(6)]
    grammars = [*others[:3], failing, *others[3:]]
    words = -(-byte_level.compiler.vocab_size // 32)
    a = byte_level.id("a")
    for _ in range(9):
        masks = np.full((len(grammars), words), -1, dtype=np.int32)
        MaskThreads(2).fill([(grammar, row) for row, grammar in enumerate(grammars)], masks)
        for grammar in grammars:
            grammar.accept(a)
    allowed = masks[:, a // 32] >> a % 32 & 1
    assert allowed.tolist() == [1, 1, 1, 0, 1, 1, 1]
    assert not masks[3].any()


def test_ids_without_a_token_and_special_tokens_are_never_allowed(world: World) -> None:
    allowed = world.allowed(world.grammar(regex="(?s:.*)"))
    assert allowed <= world.spelled.keys() | set(world.eos)
    assert set(world.eos) <= allowed


def test_an_added_token_that_is_not_special_spells_its_text(world: World) -> None:
    grammar = world.grammar(guided_choice=["<tool_call>x"])
    tool_call = world.id("<tool_call>")
    assert world.allowed(grammar) == {tool_call}
    assert grammar.accept(tool_call)


def test_a_special_token_is_allowed_where_the_grammar_names_its_id(world: World) -> None:
    start = world.id("<s>")
    grammar = world.grammar(guided_grammar=f'start: "a" <[{start}]> "a"')
    world.take(grammar, "a")
    assert world.allowed(grammar) == {start}
    assert grammar.accept(start)


def test_a_special_tokens_spelling_is_not_that_token(world: World) -> None:
    grammar = world.grammar(guided_choice=["a</s>a"])
    assert grammar.accept(world.id("a"))
    assert not world.allowed(grammar) & set(world.eos)
    assert not set(grammar.fast_forward()) & set(world.eos)
