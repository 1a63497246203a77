"""The pooling mode in a model's files, as sentence-transformers writes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pando_worker.messages import Pooling
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.server.pooling import Embeddings, NoEmbeddings, read_pooling

OLD = "sentence_transformers.models."
NEW = "sentence_transformers.sentence_transformer.modules.pooling."
QWEN3_EMBEDDING: dict[str, Any] = {
    "word_embedding_dimension": 1024,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
    "pooling_mode_weightedmean_tokens": False,
    "pooling_mode_lasttoken": True,
    "include_prompt": True,
}


def write(
    folder: Path, pooling: object, kinds: tuple[str, ...] = (), path: str = "1_Pooling"
) -> Path:
    paths = {f"{OLD}Pooling": path, f"{NEW}Pooling": path}
    parts = [{"idx": i, "path": paths.get(kind, ""), "type": kind} for i, kind in enumerate(kinds)]
    if parts:
        (folder / "modules.json").write_text(json.dumps(parts))
    (folder / path).mkdir(parents=True)
    (folder / path / "config.json").write_text(json.dumps(pooling))
    return folder


def flags(*modes: str) -> dict[str, Any]:
    names = {name: name in modes for name in QWEN3_EMBEDDING if name.startswith("pooling_mode")}
    return QWEN3_EMBEDDING | names


def test_without_files_the_last_token_counts(tmp_path: Path) -> None:
    assert read_pooling(tmp_path, "auto") == Embeddings(Pooling.LAST)
    assert read_pooling(tmp_path, "auto", default=Pooling.MEAN) == Embeddings(Pooling.MEAN)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN3_EMBEDDING, Pooling.LAST),
        (flags("pooling_mode_mean_tokens"), Pooling.MEAN),
        ({"pooling_mode": "lasttoken", "embedding_dimension": 8}, Pooling.LAST),
        ({"pooling_mode": "mean"}, Pooling.MEAN),
        ({"pooling_mode": ["mean"]}, Pooling.MEAN),
        (flags("pooling_mode_cls_token"), Pooling.CLS),
        (flags("pooling_mode_max_tokens"), Pooling.MAX),
        (flags("pooling_mode_mean_sqrt_len_tokens"), Pooling.SQRT),
        ({"pooling_mode": "weightedmean"}, Pooling.WEIGHTED),
    ],
)
@pytest.mark.parametrize("kinds", [(), (f"{OLD}Transformer", f"{OLD}Pooling", f"{OLD}Normalize")])
def test_files_say_what_counts_in_either_spelling(
    tmp_path: Path, config: object, expected: Pooling, kinds: tuple[str, ...]
) -> None:
    assert read_pooling(write(tmp_path, config, kinds), "auto") == Embeddings(expected)


def test_the_list_of_parts_says_where_the_pooling_is(tmp_path: Path) -> None:
    kinds = ("sentence_transformers.base.modules.transformer.Transformer", f"{NEW}Pooling")
    write(tmp_path, {"pooling_mode": "mean"}, kinds, path="pool")
    # Nothing in the list normalizes.
    assert read_pooling(tmp_path, "auto") == Embeddings(Pooling.MEAN, is_normalized=False)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (flags("pooling_mode_mean_tokens", "pooling_mode_max_tokens"), "mean and max"),
        (flags(), "none"),
        ({"pooling_mode": "attention"}, "attention"),
        ({"pooling_mode": ["mean", "lasttoken"]}, "mean and lasttoken"),
    ],
)
def test_another_pooling_is_refused_by_name_unless_one_is_chosen(
    tmp_path: Path, config: object, named: str
) -> None:
    write(tmp_path, config)
    found = read_pooling(tmp_path, "auto")
    assert isinstance(found, NoEmbeddings)
    assert f"1_Pooling/config.json has pooling {named}:" in found.reason
    for choice in ("last", "mean", "cls", "max"):
        assert read_pooling(tmp_path, choice) == Embeddings(Pooling(choice))


@pytest.mark.parametrize("choice", ["auto", "last"])
def test_further_parts_are_refused_whatever_is_chosen(tmp_path: Path, choice: Any) -> None:
    kinds = (f"{OLD}Transformer", f"{OLD}Pooling", f"{OLD}LayerNorm", f"{OLD}Normalize")
    found = read_pooling(write(tmp_path, QWEN3_EMBEDDING, kinds), choice)
    assert isinstance(found, NoEmbeddings)
    assert found.reason.startswith("its modules.json has LayerNorm: ")


def test_parts_in_another_order_are_refused(tmp_path: Path) -> None:
    kinds = (f"{OLD}Transformer", f"{OLD}Normalize", f"{OLD}Pooling")
    found = read_pooling(write(tmp_path, QWEN3_EMBEDDING, kinds), "auto")
    assert isinstance(found, NoEmbeddings)
    assert "has Transformer, Normalize, Pooling in this order" in found.reason


@pytest.mark.parametrize("content", ["{", "[]", "3"])
@pytest.mark.parametrize("name", ["1_Pooling/config.json", "modules.json"])
def test_a_broken_file_is_said_to_be_broken(tmp_path: Path, name: str, content: str) -> None:
    write(tmp_path, QWEN3_EMBEDDING)
    (tmp_path / name).write_text("{}" if (name, content) == ("modules.json", "[]") else content)
    with pytest.raises(BrokenCheckpoint, match="cannot read"):
        read_pooling(tmp_path, "auto")
