"""Text and scored tokens of an output, for any grouping of tokens and place of stop strings."""

from hypothesis import given
from hypothesis import strategies as st

from pando_worker.messages import FinishReason, Output, TokenLogprob
from pando_worker.server.text.reader import Delta, OutputReader, ScoredToken, TextOptions
from pando_worker.tokenizer.detokenizer import Vocabulary
from tests.worker.server.text.tokenizers_for_tests import byte_level

TOKENIZER = byte_level()
VOCABULARY = Vocabulary(TOKENIZER)
[EOS] = TOKENIZER.encode("</s>").ids

texts = st.text("ab🙂é ", min_size=1, max_size=12)


def outputs(token_ids: list[int], cuts: list[int], finish: FinishReason) -> list[Output]:
    """The tokens in parts that end at these positions, each token scored by its position."""
    ends = sorted({cut % len(token_ids) for cut in cuts} | {len(token_ids)})
    parts = []
    for start, end in zip([0, *ends], ends, strict=False):
        scores = [TokenLogprob(float(-place)) for place in range(start, end)]
        last = end == len(token_ids)
        parts.append(
            Output(
                rid="",
                token_ids=token_ids[start:end],
                cached_tokens=0,
                finish=finish if last else None,
                logprobs=scores,
            )
        )
    return parts


def read(options: TextOptions, parts: list[Output]) -> list[Delta]:
    reader, deltas = OutputReader(0, VOCABULARY, options), []
    for part in parts:
        deltas.append(reader.read(part))
        if deltas[-1].finish:
            break
    return deltas


def scored(deltas: list[Delta]) -> list[ScoredToken]:
    return [token for delta in deltas for token in delta.scored]


@given(
    texts, st.lists(st.text("ab🙂é ", min_size=1, max_size=3), max_size=2), st.booleans(), st.data()
)
def test_scores_are_those_of_the_tokens_with_text_in_the_answer(
    text: str, stop: list[str], include: bool, data: st.DataObject
) -> None:
    token_ids = TOKENIZER.encode(text).ids
    options = TextOptions(stop=stop, include_stop=include)
    whole = read(options, outputs(token_ids, [], FinishReason.LENGTH))
    cuts = data.draw(st.lists(st.integers(0, 100), max_size=8))
    parts = read(options, outputs(token_ids, cuts, FinishReason.LENGTH))

    answer = "".join(delta.text for delta in whole)
    assert "".join(delta.text for delta in parts) == answer
    assert scored(parts) == scored(whole)

    # A token counts where its first byte is before the answer's last; offsets by whole decodes.
    kept, length = [], 0
    for place, token_id in enumerate(token_ids):
        if length < len(answer.encode()):
            kept.append((token_id, -float(place)))
        length += len(VOCABULARY[token_id])
    found = [(token.token_id, token.score.logprob) for token in scored(whole)]
    assert found == kept
    offsets = [token.offset for token in scored(whole)]
    spelled = b""
    for offset, token_id in zip(offsets, token_ids, strict=False):
        assert offset == len(spelled.decode(errors="ignore"))
        spelled += VOCABULARY[token_id]


def test_a_score_is_never_out_before_its_text() -> None:
    token_ids = TOKENIZER.encode("aab").ids
    [first, *_] = read(TextOptions(stop=["aac"]), outputs(token_ids, [1], FinishReason.LENGTH))
    assert (first.text, first.scored) == ("", [])


def test_an_output_that_its_grammar_ends_keeps_its_last_token() -> None:
    token_ids = TOKENIZER.encode("ab").ids
    options = TextOptions(stop_token_ids=[EOS])
    for ids, matched in ((token_ids, None), ([*token_ids, EOS], EOS)):
        deltas = read(options, outputs(ids, [], FinishReason.STOP))
        assert "".join(delta.text for delta in deltas) == "ab"
        assert deltas[-1].finish is not None and deltas[-1].finish.matched == matched
        assert len(scored(deltas)) == len(token_ids)


def test_stop_strings_do_not_count_in_the_tokens_that_must_be() -> None:
    token_ids = TOKENIZER.encode("a").ids * 4
    options = TextOptions(stop=["a"], unstoppable=2)
    deltas = read(options, outputs(token_ids, [1, 2, 3], FinishReason.LENGTH))
    assert "".join(delta.text for delta in deltas) == "aa"
