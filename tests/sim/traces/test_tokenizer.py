"""Traces with text, tokenized by a model's own tokenizer."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pando_fleet.placement.prefix import CHUNK_BYTES, chat_bytes, completion_bytes
from pando_sim.traces import Reading, TraceError, open_trace
from pando_sim.traces.formats.text import token_ids
from pando_sim.traces.prompts import TextPrompt
from pando_sim.traces.tokenizer import TextTokenizer
from tests.sim.traces.files import equal_start, json_lines

words = st.lists(st.sampled_from(["aspen", "grove", "é", "trunks", "of", "one"]), max_size=8).map(
    lambda few: few * 12
)
WORDS = "the aspen grove is one organism of many trunks and one root"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([WORDS] * 20, trainer)
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_contents_have_the_models_own_tokens(file: Path) -> None:
    messages = [{"role": "user", "content": WORDS}, {"role": "assistant", "content": "é " + WORDS}]
    tokens = TextTokenizer(file)(chat_bytes(messages)).tolist()
    real = Tokenizer.from_file(str(file))
    for message in messages:
        ids = real.encode(message["content"]).ids
        assert any(tokens[at : at + len(ids)] == ids for at in range(len(tokens)))
    shorter = TextTokenizer(file)(chat_bytes(messages[:1])).tolist()
    assert tokens[: len(shorter)] == shorter


def test_prompts_and_answers_of_a_trace_are_counted_with_it(tmp_path: Path, file: Path) -> None:
    rows = [
        {"timestamp": 0, "prompt": WORDS, "output": WORDS},
        {"timestamp": 1, "prompt": f"{WORDS} and more", "output": ""},
    ]
    reading = pickle.loads(pickle.dumps(Reading(tokenize=TextTokenizer(file))))
    first, second = open_trace(json_lines(tmp_path / "trace", rows), reading)
    count = len(Tokenizer.from_file(str(file)).encode(WORDS).ids)
    assert count < len(WORDS) / 4
    assert (first.prompt.num_tokens, first.output_tokens) == (count, count)
    assert equal_start(first.prompt.tokens(), second.prompt.tokens()) == count


@given(start=words, one=words, other=words, kept=st.integers(0, 3))
def test_renewed_texts_share_the_tokens_that_they_shared(
    file: Path, start: list[str], one: list[str], other: list[str], kept: int
) -> None:
    tokenize = TextTokenizer(file)
    left, right = (TextPrompt(" ".join(start + rest).encode(), tokenize) for rest in (one, other))
    new_left, new_right = left.renewed(kept, 1), right.renewed(kept, 1)
    assert len(new_left.tokens()) == new_left.num_tokens == left.num_tokens
    size = kept * CHUNK_BYTES
    if equal_start(left.data, right.data) >= size:
        shared = equal_start(left.tokens(), right.tokens())
        assert equal_start(new_left.tokens(), new_right.tokens()) == shared
    if size >= len(left.data):
        assert new_left.tokens().tolist() == left.tokens().tolist()
    else:
        # A tokenizer looks no farther than a word: all tokens except those of a cut word are kept.
        whole_words = left.data[:size].rpartition(b" ")[0]
        with_old = equal_start(left.tokens(), new_left.tokens())
        assert len(tokenize(whole_words)) <= with_old <= len(tokenize(left.data[:size]))


def test_renewed_token_ids_keep_whole_ones() -> None:
    prompt = TextPrompt(completion_bytes(list(range(200))), token_ids)
    kept = [equal_start(prompt.renewed(chunks, 1).tokens(), range(200)) for chunks in range(5)]
    assert kept == [0, 63, 127, 191, 200]  # of a chunk 64, but the prompt begins with a mark


def test_another_file_is_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TraceError, match=r"tokenizer\.json: is not a tokenizer\.json"):
        TextTokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(TraceError, match="No such file"):
        TextTokenizer(tmp_path / "nowhere")
