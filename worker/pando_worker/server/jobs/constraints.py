"""Turns a request's constraints on its output into one grammar for the scheduler.

OpenAI, vLLM and SGLang have many fields for this; each becomes a grammar in llguidance's serialized
form. Every grammar is checked here, so that one that cannot be compiled is answered with 400 before
anything runs.
"""

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from pando_worker.grammar.limits import LIMITS, MAX_GRAMMAR_CHARS, compiler_threads
from pando_worker.parsers import lark
from pando_worker.parsers.formats import ToolFormat
from pando_worker.parsers.reasoning import ReasoningFormat, Start
from pando_worker.parsers.tools import ToolUse
from pando_worker.server.errors import ApiError, bad_request, wrong_value
from pando_worker.server.jobs.beside_calls import Grammar, text_of, with_calls
from pando_worker.server.jobs.gbnf import gbnf_to_lark
from pando_worker.server.jobs.lark_operators import intersects

MAX_CHOICES = 1024
_MAX_MESSAGE_CHARS = 500
_INNER = re.compile(r"^at 1\(\d+\): | \(in regex\)")
_THREADS = 2


def grammar_of(
    *,
    response_format: object = None,
    structured_outputs: object = None,
    guided_json: object = None,
    guided_regex: object = None,
    guided_choice: object = None,
    guided_grammar: object = None,
    json_schema: object = None,
    regex: object = None,
    ebnf: object = None,
    tool_use: ToolUse | None = None,
    tool_format: ToolFormat | None = None,
    reasoning: tuple[ReasoningFormat, Start] | None = None,
    special_tokens: Mapping[str, int] | None = None,
) -> str | None:
    """The grammar that the output must follow, or None if the output is unconstrained.

    Takes the raw values of the request's JSON fields of the same names; None is an absent field.
    Usually takes a millisecond, but up to a second for a hostile grammar (mostly without the GIL),
    so call it in a thread if any field is given.

    Args:
        response_format: OpenAI's {type: text | json_object | json_schema, ...}. Together with tools
            that the model may call, it constrains the answer, not the calls.
        structured_outputs: vLLM's {json | regex | choice | grammar | json_object: ...}; before it
            had that object it had the four fields `guided_...`.
        json_schema: SGLang's field, JSON text; `regex` and `ebnf` are SGLang's as well.
        tool_use: from `read_tool_use`. The output is constrained to calls if the request requires
            one, and calls to their schemas if one of the tools is strict.
        tool_format: the model's; needed if `tool_use` constrains the output.
        reasoning: the model's format and where this output begins. Reasoning before the answer is
            unconstrained.
        special_tokens: ids of the tokenizer's special tokens by their text.

    Raises:
        ApiError: 400; `param` names the field.
    """
    readers: dict[str, tuple[object, Callable[[object, str], Grammar | None]]] = {
        "response_format": (response_format, _response_format),
        "structured_outputs": (structured_outputs, _structured_outputs),
        "guided_json": (guided_json, _json),
        "guided_regex": (guided_regex, _regex),
        "guided_choice": (guided_choice, _choice),
        "guided_grammar": (guided_grammar, _context_free),
        "json_schema": (json_schema, _json),
        "regex": (regex, _regex),
        "ebnf": (ebnf, _context_free),
    }
    answers: dict[str, Grammar] = {}
    for param, (value, read) in readers.items():
        if value is not None and (grammar := read(value, param)) is not None:
            answers[param] = grammar
    if len(answers) > 1:
        raise bad_request(
            f"{' and '.join(answers)} both constrain the output; give one of them", list(answers)[1]
        )
    param, answer = next(iter(answers.items()), ("tools", None))
    special = special_tokens or {}
    grammars = [answer] if answer else []
    if tool_use is not None:
        assert tool_format is not None, "calls have a format"
        grammars = with_calls(answer, param, tool_use, tool_format, special, _may_begin)
    if grammars and reasoning is not None:
        is_text = tool_use is None
        grammars = _after_reasoning(grammars, *reasoning, special, is_text=is_text)
    return _checked(grammars, param) if grammars else None


def shapes_answers(constraints: Mapping[str, object]) -> bool:
    """Whether an answer has a grammar by these fields, by name."""
    return any(
        name != "response_format" or _response_format(value, name) is not None
        for name, value in constraints.items()
    )


def _response_format(value: object, param: str) -> Grammar | None:
    match value:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return _json_of({"type": "object"})
        case {"type": "json_schema", "json_schema": {"schema": dict(schema), **rest}}:
            if not isinstance(rest.get("name"), str):
                raise _wrong(f"{param}.json_schema.name", "is required")
            if not isinstance(strict := rest.get("strict"), bool | None):
                raise wrong_value(f"{param}.json_schema.strict", "true or false", strict)
            # Without it, OpenAI promises best effort: keywords unknown to llguidance are ignored.
            return _json_of(schema, strict=strict is True)
        case {"type": "json_schema"}:
            raise _wrong(f"{param}.json_schema", "must be {name, schema: {...}}")
        case {"type": kind}:
            raise wrong_value(f"{param}.type", "text, json_object or json_schema", kind)
        case _:
            raise wrong_value(param, "an object with a type", value)


def _structured_outputs(value: object, param: str) -> Grammar:
    readers = {
        "json": _json,
        "regex": _regex,
        "choice": _choice,
        "grammar": _context_free,
        "json_object": _json_object,
    }
    if not isinstance(value, dict):
        raise wrong_value(param, "an object", value)
    given = [name for name, asked in value.items() if asked is not None and asked is not False]
    if len(given) != 1 or given[0] not in readers:
        raise _wrong(param, f"must have one of {', '.join(readers)} and nothing else")
    return readers[given[0]](value[given[0]], f"{param}.{given[0]}")


def _json(value: object, param: str) -> Grammar:
    """A schema, as an object or as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(_bounded(value, param))
        except (ValueError, RecursionError) as error:
            raise _wrong(param, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise wrong_value(param, "a JSON schema as an object or as JSON text", value)
    return _json_of(value)


def _json_object(value: object, param: str) -> Grammar:
    if value is not True:
        raise wrong_value(param, "true", value)
    return _json_of({"type": "object"})


def _regex(value: object, param: str) -> Grammar:
    """The whole output must match; Rust's syntax, without lookaround and back references."""
    text = _bounded(value, param)
    grammars = json.loads(LLMatcher.grammar_from_regex(text))["grammars"]
    return {"lark_grammar": grammars[0]["lark_grammar"]}


def _choice(value: object, param: str) -> Grammar:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise _wrong(param, "must be a list of strings, at least one")
    if len(value) > MAX_CHOICES:
        raise _wrong(param, f"has {len(value)} choices; at most {MAX_CHOICES} are allowed")
    # One terminal instead of a rule, since alternatives in a terminal cost the parser nothing.
    choices = " | ".join(map(lark.literal, value))
    return {"lark_grammar": f"start: CHOICE\nCHOICE: {choices}"}


def _context_free(value: object, param: str) -> Grammar:
    """GBNF, which SGLang calls EBNF, or Lark with a line `%llguidance` or `start:`."""
    text = _bounded(value, param)
    try:
        grammar = gbnf_to_lark(text)
    except ValueError as error:
        raise _wrong(param, f"cannot be used: {_shortened(str(error))}") from error
    if intersects(grammar):
        problem = "has an intersection (&, or ~ twice), whose cost has no bound"
        raise _wrong(param, f"{problem}: write one pattern, or a JSON schema with lengths")
    return {"lark_grammar": grammar}


def _may_begin(grammar: Grammar, begin: str) -> bool:
    """False for a grammar that cannot be compiled."""
    data = begin.encode()

    def accepts() -> bool:
        matcher = LLMatcher(_bytes(), text_of([grammar]), log_level=0, limits=LIMITS)
        return not matcher.is_error() and matcher.try_consume_tokens(list(data)) == len(data)

    return _threads().submit(accepts).result()


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")


def _after_reasoning(
    grammars: list[Grammar],
    form: ReasoningFormat,
    start: Start,
    special_tokens: Mapping[str, int],
    *,
    is_text: bool,
) -> list[Grammar]:
    before = form.before_text if is_text else ""
    if start is Start.ANSWER and not before:
        return grammars
    opening, closing, after = (
        lark.spelled(text, special_tokens) if text else ""
        for text in (form.opening, form.closing, form.after)
    )
    is_token = form.closing in special_tokens
    thoughts = f"thoughts: TEXT {closing}" if is_token else f"thoughts[suffix={closing}]: TEXT"
    first = f"thoughts GAP {after}"
    if start is not Start.INSIDE:
        first = f"({opening} thoughts GAP {after})?"
    if start is Start.ANSWER:
        first = ""
    text = lark.spelled(before, special_tokens) if before else ""
    rules = f"start: {first} {text} @answer\n{thoughts}\nTEXT: /(?s:.*)/\nGAP: /\\s{{0,4}}/\n"
    answer, *others = grammars
    return [{"lark_grammar": rules}, {"name": "answer", **answer}, *others]


def _json_of(schema: Mapping[str, Any], *, strict: bool = True) -> Grammar:
    return {"json_schema": lark.on_one_line(schema, strict=strict)}


def _checked(grammars: list[Grammar], param: str) -> str:
    text = text_of(grammars)
    if len(text) > MAX_GRAMMAR_CHARS:
        raise _too_long(len(text), param)
    validation = _threads().submit(LLMatcher.validate_grammar, text, limits=LIMITS)
    if problem := validation.result():
        raise _wrong(param, f"cannot be used: {_shortened(problem)}")
    return text


@cache
def _threads() -> ThreadPoolExecutor:
    return compiler_threads(_THREADS, "constraints")


def _bounded(value: object, param: str) -> str:
    if not isinstance(value, str) or not value:
        raise wrong_value(param, "a non-empty string", value)
    if len(value) > MAX_GRAMMAR_CHARS:
        raise _too_long(len(value), param)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _wrong(param, f"is not valid Unicode: {error.reason}") from error
    return value


def _too_long(length: int, param: str) -> ApiError:
    return _wrong(param, f"has {length} characters; at most {MAX_GRAMMAR_CHARS} are allowed")


def _wrong(param: str, problem: str) -> ApiError:
    return bad_request(f"{param} {problem}", param)


def _shortened(message: str) -> str:
    """The compiler's message without the grammar's text, which it repeats, and without the place
    in the grammar that a regex became."""
    lines = [line for line in message.splitlines() if not line.startswith("   ")]
    text = _INNER.sub("", " ".join(lines)).replace("regex parse error: error: ", "")
    return f"{text[:1].lower()}{text[1:]}"[:_MAX_MESSAGE_CHARS]
