"""Fields of `generation_config.json` that a worker reports as without effect."""

import json
from pathlib import Path

import pytest
from transformers import GenerationConfig

from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.generation_config import without_effect

BART_CNN = {
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
    "length_penalty": 2.0,
    "min_length": 56,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
}


def test_a_configuration_of_transformers_defaults_has_none(tmp_path: Path) -> None:
    GenerationConfig(eos_token_id=2).save_pretrained(tmp_path)
    assert without_effect(tmp_path, hears=False) == ""
    neutral = {"num_beams": 1, "length_penalty": 1.0, "min_length": 0, "bad_words_ids": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(neutral))
    assert without_effect(tmp_path, hears=False) == ""


@pytest.mark.parametrize("name", ["generation_config.json", "config.json"])
def test_what_a_summarizing_bart_asks_for_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps(BART_CNN))
    found = without_effect(tmp_path, hears=False)
    assert sorted(found.split(", ")) == [
        "forced_eos_token_id = 2",
        "length_penalty = 2.0",
        "min_length = 56",
        "no_repeat_ngram_size = 3",
        "num_beams = 4",
    ]


def test_models_that_hear_follow_suppressed_tokens(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"suppress_tokens": [1, 2]}))
    assert without_effect(tmp_path, hears=True) == ""
    assert without_effect(tmp_path, hears=False) == "suppress_tokens = [1, 2]"


def test_a_malformed_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(BrokenCheckpoint):
        without_effect(tmp_path, hears=False)
