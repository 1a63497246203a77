"""GBNF grammars become grammars that accept the same texts."""

import re
import time

import pytest

from pando_worker.server.errors import ApiError
from pando_worker.server.jobs.constraints import grammar_of
from pando_worker.server.jobs.gbnf import gbnf_to_lark
from tests.worker.server.jobs.test_constraints import fits

JSON = r"""
# As llama.cpp ships it.
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("text", "is_json"),
    [
        ("{}", True),
        ('{"a": [1, -2.5e3, "x\\u00e9\\n", {}], "b": null}', True),
        ('{ "é🙂":\n\t [ ]}', True),
        ("[1]", False),
        ('{"a": tru}', False),
        ('{"a" 1}', False),
        ('{"a": "\n"}', False),
    ],
)
def test_llama_cpps_json_grammar_takes_json(text: str, is_json: bool) -> None:
    assert fits(grammar_of(ebnf=JSON), text) == is_json


@pytest.mark.parametrize(
    ("right_side", "pattern"),
    [
        ('"a" | "b" "c"', "a|bc"),
        ('("a" | "b") "c"', "[ab]c"),
        ('"a"{2,3} "b"{2} "c"{1,} "d"?', "a{2,3}b{2}c+d?"),
        (r'"\x41\u00e9\U0001F642\n\t\"\\"', re.escape('Aé🙂\n\t"\\')),
        (r"[a-c^\]\-&[~]+", r"[a-c^\]\-&\[~]+"),
        (r"[^a-c\n]*", r"[^a-c\n]*"),
        (r"[\u0041-\x43]", "[A-C]"),
        ("[/-]+", "[/-]+"),
        (". .", "(?s:..)"),
        ('("a"+)? ("b"{2})*', "a*(bb)*"),
        ('"a" |', "a?"),
        ('""', ""),
    ],
)
def test_a_grammar_without_recursion_means_what_its_regex_means(
    right_side: str, pattern: str
) -> None:
    grammar = grammar_of(ebnf=f"root ::= part\npart ::= {right_side}")
    for text in (
        "",
        "a",
        "b",
        "c",
        "bc",
        "aabbc",
        "aaabbccd",
        "é",
        "/",
        "-",
        "]&",
        "\n",
        "[",
        "~^",
    ):
        assert fits(grammar, text) == bool(re.fullmatch(pattern, text)), text
    assert fits(grammar, 'Aé🙂\n\t"\\') == bool(re.fullmatch(pattern, 'Aé🙂\n\t"\\'))


def test_parts_that_overlap_are_matched_as_a_whole_where_there_is_no_recursion() -> None:
    grammar = grammar_of(ebnf='root ::= word "b"\nword ::= [ab]+')
    assert fits(grammar, "aab")
    assert fits(grammar, "bb")
    assert not fits(grammar, "ba")


def test_parts_that_overlap_are_matched_as_a_whole_within_a_recursive_rule() -> None:
    grammar = grammar_of(ebnf='root ::= "(" root ")" | [a-z]* "b"')
    assert fits(grammar, "((abb))")
    assert not fits(grammar, "((abba))")


def test_names_that_differ_only_in_case_or_signs_are_different_rules() -> None:
    text = 'root ::= a-b a_b A_B ab a root?\na-b ::= "1"\na_b ::= "2"\nA_B ::= "3"\nab ::= "4"\n'
    assert fits(grammar_of(ebnf=text + 'a ::= "5"'), "1234512345")


def test_a_rule_may_end_where_the_next_begins_or_share_its_line() -> None:
    assert fits(grammar_of(ebnf='root ::= "a"\n  b\n\nb ::= "b" c ::= "c"'), "ab")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing", "no rule 'root'"),
        ("x", "expected a rule"),
        ('a ::= "b"', "no rule 'root'"),
        ("root ::= b", "'b' is used but not defined"),
        ('root ::= "a"\nroot ::= "b"', "defined twice at line 2"),
        ('root ::= ("a"', r"expected \) at the end"),
        ('root ::= "a") | ("b"', "closes nothing at line 1"),
        ('root ::= "a', "cannot read"),
        ("root ::= [z-a]", "the start must be <= the end"),
        ("root ::= []", r"invalid regex \"\[\]\""),
        ('root ::= "a"**', "nothing to repeat"),
        ("root ::= " + "(" * 100, "nested deeper"),
        (r'root ::= "\ud800"', "not a valid character"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        grammar_of(ebnf=text)


def test_a_long_chain_of_rules_is_read_in_linear_time() -> None:
    rules = "\n".join(f'r{i} ::= "x" r{i + 1}' for i in range(8_000))
    started = time.process_time()
    gbnf_to_lark(f'root ::= r0\n{rules}\nr8000 ::= "y"')
    assert time.process_time() - started < 5


def test_lark_is_left_as_it_is() -> None:
    assert gbnf_to_lark('start: "a"') == 'start: "a"'
