"""Tokenizers of GGUF files compared with those that they were written from."""

from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.loading.gguf.header import read_header
from pando_worker.models.loading.gguf.metadata import Metadata
from pando_worker.models.loading.gguf.tokenizer import write_tokenizer
from pando_worker.tokenizer.loading import load_tokenizer
from tests.worker.server.text.tokenizers_for_tests import SPECIAL, byte_level, sentencepiece

TEXTS = st.text() | st.lists(
    st.sampled_from(["the ", "quick", " ", "  ", "12 345", "Grüße", "\n\n", "世界", "🙂", "can't"])
).map("".join)


def split_as(pre: str) -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[pre]), behavior="isolated")
    return pre_tokenizers.Sequence([split, byte_level])


def through_gguf(tokenizer: Tokenizer, folder: Path, **fields: Any) -> Any:
    """The tokenizer read from a file with the vocabulary of `tokenizer`."""
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    kinds = [
        gguf.TokenType.CONTROL
        if token in SPECIAL
        else gguf.TokenType.BYTE
        if token.startswith("<0x")
        else gguf.TokenType.NORMAL
        for token, _ in vocab
    ]
    model = fields.pop("model")
    writer.add_context_length(128)
    writer.add_tokenizer_model(model)
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types(kinds)
    if model == "gpt2":
        import json

        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        writer.add_token_merges([" ".join(pair) for pair in merges])
        writer.add_tokenizer_pre(fields.pop("pre"))
    else:
        writer.add_token_scores([-float(number) for number in range(len(vocab))])
    writer.add_bos_token_id(SPECIAL.index("<s>"))
    writer.add_eos_token_id(SPECIAL.index("</s>"))
    writer.add_unk_token_id(SPECIAL.index("<unk>"))
    writer.add_chat_template("{{ messages[0].content }}!")
    for name, value in fields.items():
        getattr(writer, name)(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_tokenizer(Metadata(read_header(folder / "model.gguf")), folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="module", params=["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"])
def byte_levels(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, Any]:
    truth = byte_level()
    if request.param != "gpt-2":
        truth.pre_tokenizer = split_as(request.param)
    read = through_gguf(truth, tmp_path_factory.mktemp("gguf"), model="gpt2", pre=request.param)
    return truth, read


@settings(deadline=None)
@given(text=TEXTS)
def test_a_byte_level_tokenizer_gives_the_same_ids(byte_levels: tuple[Any, Any], text: str) -> None:
    truth, read = byte_levels
    assert read.encode(text, add_special_tokens=False) == truth.encode(text).ids


@pytest.fixture(scope="module", params=[True, False], ids=["space before", "no space before"])
def sentencepieces(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, Any]:
    truth = sentencepiece()
    if not request.param:
        from tokenizers import normalizers

        truth.normalizer = normalizers.Replace(" ", "▁")
    read = through_gguf(
        truth,
        tmp_path_factory.mktemp("gguf"),
        model="llama",
        add_add_space_prefix=request.param,
    )
    return truth, read


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_a_sentencepiece_tokenizer_gives_the_same_ids(
    sentencepieces: tuple[Any, Any], text: str
) -> None:
    truth, read = sentencepieces
    assert read.encode(text) == truth.encode(text).ids  # BOS first: it is the default


def test_special_tokens_stay_whole_and_bos_and_eos_come_as_asked(tmp_path: Path) -> None:
    truth = byte_level()
    read = through_gguf(
        truth,
        tmp_path,
        model="gpt2",
        pre="gpt-2",
        add_add_bos_token=True,
        add_add_eos_token=True,
    )
    ids = truth.encode("the</s>").ids
    assert read.encode("the</s>") == [0, *ids, 1]
    assert ids[-1] == 1
    assert read.chat_template == "{{ messages[0].content }}!"
    assert (read.bos_token, read.eos_token, read.unk_token) == ("<s>", "</s>", "<unk>")


def test_another_way_to_split_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"splits text as 'chameleon'.*supported: default"):
        through_gguf(byte_level(), tmp_path, model="gpt2", pre="chameleon")
