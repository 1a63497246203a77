"""Traces with text in the tokens of a model's own tokenizer."""

import pickle
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pando_fleet.prefix import chat_bytes
from pando_sim.traces import Reading, TextTokenizer, TraceError, open_trace
from tests.sim.traces.files import equal_start, json_lines

WORDS = "the aspen grove is one organism of many trunks and one root"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([WORDS] * 20, trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


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


def test_another_file_is_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TraceError, match=r"tokenizer\.json: is no tokenizer\.json"):
        TextTokenizer(tmp_path / "tokenizer.json")
    with pytest.raises(TraceError, match="No such file"):
        TextTokenizer(tmp_path / "nowhere")
