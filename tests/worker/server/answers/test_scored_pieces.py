"""Tokens of pieces, against texts that are put together from parts whose places are known."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pando_worker.messages import TokenLogprob
from pando_worker.parsers.families.hermes import HERMES
from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.pieces import Content
from pando_worker.parsers.reasoning import QWEN3, Start
from pando_worker.parsers.tools import Tool
from pando_worker.server.answers.scored_pieces import ScoredPieces
from pando_worker.server.text.reader import ScoredToken

CALL = '<tool_call>\n{"name": "time", "arguments": {"city": "I think"}}\n</tool_call>'
# Words that the tags and the call have, too, and what looks like the beginning of a tag.
WORDS = st.sampled_from(
    ["t", "hi", "think", "call", " ", "\n", "I think", "<", "</t", "é", "<tool_"]
)


@dataclass(frozen=True)
class Written:
    text: str
    contents: tuple[tuple[int, int], ...]  # where the answer's text stands


def written(thought: str, before: str, after: str) -> Written:
    text = f"<think>\n{thought}\n</think>\n\n" if thought else ""
    places = [(len(text), len(text) + len(before))]
    text += f"{before}\n{CALL}\n"
    places += [(len(text), len(text) + len(after))]
    return Written(text + after, tuple(places))


def told(words: list[str]) -> str:
    """Without blanks around it, which parsers leave out, and without what `ScoredPieces` names as
    ambiguous at its beginning."""
    return "".join(words).strip().lstrip("<").strip()


TEXTS = st.builds(
    written,
    st.lists(WORDS, max_size=4).map(told),
    st.lists(WORDS, max_size=6).map(told),
    st.lists(WORDS, max_size=6).map(told),
)


def parser() -> OutputParser:
    tools = [Tool("time", {"type": "object"}, strict=False)]
    return OutputParser(QWEN3.parser(Start.MAY_OPEN), HERMES.parser(tools))


@given(TEXTS, st.lists(st.integers(1, 8), min_size=1), st.lists(st.integers(1, 5), min_size=1))
@example(written("x", "t", "t"), [1], [1])
@example(written("x", "a<<b", ""), [1], [1])
@example(written("", "t<tool_", ""), [3], [1])
def test_each_token_of_an_answers_text_is_found_once(
    output: Written, lengths: list[int], together: list[int]
) -> None:
    """However long tokens are, and however many arrive together."""
    starts = cut(len(output.text), lengths)
    pieces = ScoredPieces(parser(), wanted=True)
    found: list[int] = []
    texts: list[str] = []
    for first, last in pairwise(cut(len(starts) - 1, together)):
        tokens = [ScoredToken(i, TokenLogprob(0.0), starts[i]) for i in range(first, last)]
        text = output.text[starts[first] : starts[last]]
        for piece, scored in pieces.push(text, tokens, ends=last == len(starts) - 1):
            if isinstance(piece, Content):
                texts.append(piece.text)
                found += [token.token_id for token in scored]
    wanted = [
        i
        for i, (start, end) in enumerate(pairwise(starts))
        if any(max(start, begin) < min(end, stop) for begin, stop in output.contents)
    ]
    assert "".join(texts) == "".join(output.text[a:b] for a, b in output.contents)
    assert found == wanted


def cut(length: int, steps: list[int]) -> list[int]:
    """From 0 to the length, in these steps again and again."""
    places = [place for place in accumulate(steps * (length + 1), initial=0) if place < length]
    return [*places, length]


def test_tokens_of_one_character_stay_together() -> None:
    pieces = ScoredPieces(OutputParser(None, None), wanted=True)
    tokens = [ScoredToken(i, TokenLogprob(0.0), at) for i, at in enumerate((0, 0, 0, 1))]
    [first, second] = pieces.push("🙂!", tokens, ends=True)
    assert [token.token_id for token in first[1]] == [0, 1, 2]
    assert [token.token_id for token in second[1]] == [3]


@pytest.mark.parametrize("ends", [True, False])
def test_unwanted_scores_leave_the_pieces_alone(ends: bool) -> None:
    pieces = ScoredPieces(OutputParser(None, None), wanted=False)
    assert list(pieces.push("Hi there", [], ends=ends)) == [(Content("Hi there"), [])]
