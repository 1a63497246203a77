"""A grammar's state: rollback, fast-forward over forced text, copies, and compile errors."""

import re
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.grammar.errors import GrammarError
from pando_worker.grammar.limits import MAX_GRAMMAR_CHARS
from pando_worker.models.errors import ModelError
from tests.examples import examples
from tests.waiting import PATIENCE_S
from tests.worker.grammar.world import World
from tests.worker.server.text import tokenizers_for_tests as tiny

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@given(data=st.data())
@settings(max_examples=examples(20))
def test_rollback_undoes_accept(world: World, data: st.DataObject) -> None:
    grammar = world.grammar(guided_json=SCHEMA)
    states = [(world.allowed(grammar), grammar.fast_forward(), grammar.is_finished)]
    for _ in range(data.draw(st.integers(1, 30))):
        if not (allowed := sorted(states[-1][0])) or not grammar.accept(
            data.draw(st.sampled_from(allowed))
        ):
            break  # an end-of-sequence token was the last
        states.append((world.allowed(grammar), grammar.fast_forward(), grammar.is_finished))
        if data.draw(st.booleans()):
            back = data.draw(st.integers(0, len(states) - 1))
            grammar.rollback(back)
            del states[len(states) - back :]
            assert states[-1] == (
                world.allowed(grammar),
                grammar.fast_forward(),
                grammar.is_finished,
            )


@pytest.mark.parametrize("pattern", ["a*", "abc"])
def test_rollback_takes_back_an_end_of_sequence(world: World, pattern: str) -> None:
    grammar = world.grammar(regex=pattern)
    text = "a" if pattern == "a*" else "abc"
    world.take(grammar, text)
    before = world.allowed(grammar)
    for eos in world.eos:
        assert grammar.accept(eos)
        grammar.rollback(1)
        assert world.allowed(grammar) == before


def test_taking_back_more_than_was_accepted_is_an_error(world: World) -> None:
    grammar = world.grammar(regex="a*")
    world.take(grammar, "a")
    with pytest.raises(ValueError, match="cannot take back 2 tokens"):
        grammar.rollback(2)


# No runs of white space before a word: tokenizers with look-ahead split them by the next word.
WORDS = st.lists(st.sampled_from(["the", " quick", " brown", " fo", "x", "é", "<"]), max_size=4)
TEXTS = WORDS.map("".join)


@given(start=TEXTS, ends=st.sets(TEXTS, min_size=1, max_size=3))
@settings(max_examples=examples(30))
def test_forced_tokens_are_those_that_the_whole_texts_have_in_common(
    byte_level: World, start: str, ends: set[str]
) -> None:
    texts = sorted({start + end for end in ends} - {""})
    if not texts:
        return
    grammar = byte_level.grammar(guided_choice=texts)
    forced = grammar.fast_forward()
    for text in texts:
        assert text.encode().startswith(b"".join(byte_level.spelled[id] for id in forced))
        tokens = byte_level.tokenizer.encode(text, add_special_tokens=False).ids
        assert tokens[: len(forced)] == forced
    for token in forced:
        assert byte_level.allowed(grammar) == {token}
        assert grammar.accept(token)
    if len(texts) == 1:
        assert grammar.is_finished


def test_forced_text_behind_a_token_is_what_the_masks_allow_alone(world: World) -> None:
    grammar = world.grammar(guided_json=SCHEMA | {"x-guidance": {"whitespace_flexible": False}})
    jumps = 0
    for text in ("", "the", '"'):
        world.take(grammar, text)
        forced = grammar.fast_forward()
        jumps += len(forced)
        for token in forced:
            assert world.allowed(grammar) == {token}
            assert grammar.accept(token)
    assert jumps > 4


def test_nothing_is_forced_where_the_output_may_end(world: World) -> None:
    grammar = world.grammar(regex="a(bc)?")
    world.take(grammar, "a")
    assert grammar.fast_forward() == []


@given(text=TEXTS)
@settings(max_examples=examples(30))
def test_tokens_are_spelled_as_the_tokenizer_cuts_their_text(byte_level: World, text: str) -> None:
    bytewise = {spelled: id for id, spelled in byte_level.spelled.items() if len(spelled) == 1}
    grammar = byte_level.grammar(regex="(?s:.*)")
    tokens = grammar.spell([bytewise[bytes([byte])] for byte in text.encode()])
    assert tokens == byte_level.tokenizer.encode(text, add_special_tokens=False).ids


def test_what_is_no_text_is_left_as_it_is(byte_level: World) -> None:
    grammar = byte_level.grammar(regex="(?s:.*)")
    t, h, e, half = (byte_level.id(token) for token in ("t", "h", "e", "Ã"))
    assert len(grammar.spell([t, h, e])) == 1
    assert grammar.spell([half, t, h, e]) == [half, t, h, e]
    assert grammar.spell([t, h, e, half]) == [t, h, e, half]
    assert grammar.spell([*byte_level.eos, t, e]) == [*byte_level.eos, t, e]


def test_states_of_one_text_are_independent(world: World) -> None:
    one, other = (world.grammar(guided_choice=["ab", "ac"]) for _ in range(2))
    world.take(one, "ab")
    assert one.is_finished
    assert not other.is_finished
    world.take(other, "ac")


def test_a_wrong_grammar_is_an_error_of_its_future(world: World) -> None:
    future = world.compiler.compile('{"grammars": [{"lark_grammar": "start: nothing"}]}')
    with pytest.raises(GrammarError, match='unknown name: "nothing"'):
        future.result(timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"ebnf": "root ::= root"}, "allows no output"),
        ({"ebnf": 'root ::= root "a"'}, "allows no output"),
        ({"ebnf": 'root ::= "a" root'}, "Too many items"),  # it never ends
        ({"ebnf": "start: <[99999999]>"}, "Token range end too large"),
        ({"ebnf": "start: <nothing>"}, "unknown special token"),
        ({"regex": r"[^\s\S]"}, "allows no output"),
        ({"regex": "(a{1000}){1000}"}, "too many expressions"),
        ({"guided_json": {"$ref": "#"}}, "allows no output"),
    ],
)
def test_a_grammar_that_its_first_steps_show_to_be_wrong_is_an_error_of_its_future(
    world: World, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(GrammarError, match=problem):
        world.grammar(**fields)


def test_a_grammar_of_the_empty_output_is_one(world: World) -> None:
    assert world.allowed(world.grammar(ebnf='root ::= ""')) == set(world.eos)


def test_a_grammar_that_is_too_long_is_an_error_of_its_future(world: World) -> None:
    with pytest.raises(GrammarError, match="characters"):
        world.compiler.compile("x" * (MAX_GRAMMAR_CHARS + 1)).result(timeout=PATIENCE_S)


def test_a_failure_that_may_not_happen_again_is_not_kept(world: World, tmp_path: Path) -> None:
    folder, away = tmp_path / "model", tmp_path / "away"
    away.mkdir()
    tiny.save(world.tokenizer, away)
    with closing(GrammarCompiler(folder, world.compiler.vocab_size, world.eos)) as compiler:
        with pytest.raises(ModelError, match="tokenizer"):
            compiler.compile('start: "a"').result(timeout=PATIENCE_S)
        away.rename(folder)
        assert compiler.compile('start: "a"').result(timeout=PATIENCE_S).accept(world.id("a"))


@pytest.fixture
def found_wrong(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The errors that compilers find from now on, in order."""
    found: list[str] = []

    def problem(matcher: LLMatcher) -> str:
        found.append(matcher.get_error())
        return found[-1]

    monkeypatch.setattr("pando_worker.grammar.compiler._problem", problem)
    return found


def test_a_wrong_grammar_is_compiled_once_however_often_it_is_asked_for(
    world: World, found_wrong: list[str]
) -> None:
    futures = [world.compiler.compile('start: "a" nowhere') for _ in range(3)]
    problems = [future.exception(timeout=PATIENCE_S) for future in futures]
    assert all(isinstance(problem, GrammarError) for problem in problems)
    assert [str(problem) for problem in problems] == found_wrong * 3
    # Each request has its own error: a shared one would collect tracebacks.
    assert len(set(map(id, problems))) == 3
    assert len(found_wrong) == 1


def test_wrong_grammars_are_kept_that_were_asked_for_last(
    world: World, found_wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pando_worker.grammar.compiler._KEPT", 2)
    tiny.save(world.tokenizer, tmp_path)
    with closing(GrammarCompiler(tmp_path, world.compiler.vocab_size, world.eos)) as compiler:
        for name in ("one", "two", "one", "three", "one", "two"):
            compiler.compile(f"start: {name}").exception(timeout=PATIENCE_S)
    found = [re.search(r'unknown name: "(\w+)"', text) for text in found_wrong]
    assert [match and match[1] for match in found] == ["one", "two", "three", "two"]


def test_a_failure_to_copy_a_grammar_is_an_error_of_its_future(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request would wait for ever."""

    def fail(*_: object) -> None:
        raise MemoryError("no room for a copy")

    monkeypatch.setattr("pando_worker.grammar.compiler.Grammar", fail)
    with pytest.raises(MemoryError, match="no room"):
        world.compiler.compile('start: "copied"').result(timeout=PATIENCE_S)


def test_a_grammar_is_compiled_once_and_on_another_thread(world: World) -> None:
    text = 'start: "compiled once"'
    first = world.compiler.compile(text)
    threads: list[str] = []
    first.add_done_callback(lambda _: threads.append(threading.current_thread().name))
    first.result(timeout=PATIENCE_S)
    assert world.compiler.compile(text).done()


def test_a_grammar_too_complex_to_go_on_with_allows_nothing(byte_level: World) -> None:
    """Every prefix of the text is ambiguous in as many ways as there are rules."""
    rules = "\n".join(f'r{i}: "a" r{i} | "a"' for i in range(2100))
    grammar = byte_level.compiler.compile(
        f"start: A A A A ({' | '.join(f'r{i}' for i in range(2100))})\nA: /[ab]/\n{rules}"
    ).result(timeout=PATIENCE_S)
    a = byte_level.id("a")
    assert not all(a in byte_level.allowed(grammar) and grammar.accept(a) for _ in range(9))
    assert byte_level.allowed(grammar) == set()
    assert not grammar.is_finished


@pytest.mark.parametrize("kind", ["terminals", "references"])
def test_the_longest_chain_that_fits_does_not_overrun_the_stack(
    byte_level: World, kind: str
) -> None:
    if kind == "terminals":
        length = MAX_GRAMMAR_CHARS // 18
        links = "\n".join(f'A{i}:"x"A{i + 1}' for i in range(length))
        text = f'start:A0\n{links}\nA{length}:"y"'
    else:
        length = MAX_GRAMMAR_CHARS // 60
        links = ",".join(f'"r{i}":{{"items":{{"$ref":"#/$defs/r{i + 1}"}}}}' for i in range(length))
        schema = f'{{"$ref":"#/$defs/r0","$defs":{{{links},"r{length}":{{}}}}}}'
        text = f'{{"grammars":[{{"json_schema":{schema}}}]}}'
    assert MAX_GRAMMAR_CHARS * 0.6 < len(text) < MAX_GRAMMAR_CHARS
    grammar = byte_level.compiler.compile(text).result(timeout=PATIENCE_S)
    assert byte_level.allowed(grammar)
