"""YAML that people write: whatever is wrong with it is one kind of error, in one line."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pando_fleet import strict_yaml
from tests.examples import examples

WORDS = ["a", "1", "2024-01-", "99", "0b_", ".", "_", "<<", " ", "\n", "\n  "]
MARKS = ["-", ":", ",", "?", "!", "&", "*", "|", ">", "'", "#", "[", "]", "{", "}"]
TAGS = ["!!", "!!int", "!!map", "!!timestamp"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a' occurs twice in line 3"),
        ("a:\n  b: {c: 1, c: 2}\n", "'c' occurs twice in line 2"),
        (
            "a: 1\nb: 2024-99-99\n",
            "a value of type timestamp cannot be read (month must be in 1..12)",
        ),
        ("a: 0b_\n", "a value of type int cannot be read (quote it if it is text) in line 1"),
        (f"a: {'9' * 6000}\n", "a value of type int cannot be read"),
        ("a: !!bool perhaps\n", "a value of type bool cannot be read"),
        ("[" * 20_000, "it is nested too deeply"),
        ("a: !!map 3\n", "expected a mapping node, but found scalar in line 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, problem: str) -> None:
    for load in (strict_yaml.load, strict_yaml.load_all):
        with pytest.raises(yaml.YAMLError) as error:
            load(text)
        assert strict_yaml.problem_of(error.value).startswith(problem)


@given(st.lists(st.sampled_from([*WORDS, *MARKS, *TAGS])).map("".join))
@example("a: !!int ''")
@settings(max_examples=examples(400))
def test_any_text_is_read_or_is_no_yaml(text: str) -> None:
    try:
        strict_yaml.load(text)
    except yaml.YAMLError as error:
        assert "\n" not in strict_yaml.problem_of(error)
