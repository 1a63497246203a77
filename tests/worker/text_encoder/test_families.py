"""Text encoders through scheduler and model give the numbers of transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, RobertaModel

from pando_worker.messages import Pooling
from pando_worker.runner.cpu.text_parts import equal_parts
from pando_worker.runner.encoder_runner import EncoderRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import prompt
from tests.worker.scheduler.hash_model import pooled_states
from tests.worker.scheduler.world import World
from tests.worker.text_encoder.checkpoints import (
    CASES,
    VOCAB,
    hidden_states,
    roberta_config,
    save,
)

LENGTHS = (1, 2, 31, 33, 70, 16, 90, 3)


def world_of(path: Path, **options: object) -> World:
    settings = {"model": str(path), "threads": 1, **options}
    runner = EncoderRunner(WorkerSettings.model_validate(settings))
    return world_around(runner, **options)


def world_around(runner: EncoderRunner, **options: Any) -> World:
    return World(runner=runner, pools=runner.pools, page_size=16, max_running=64, **options)


def ids_of(length: int, seed: int) -> list[int]:
    return [4 + token % (VOCAB - 4) for token in prompt(length, seed=seed)]


@pytest.mark.parametrize("name", CASES)
def test_texts_of_all_lengths_in_one_step_are_those_of_transformers(
    tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    path = save(tmp_path, case.base(), case.tokenizer())
    theirs = AutoModel.from_pretrained(path).eval()
    world = world_of(path)
    texts = {
        f"{index}": ids_of(min(length, case.longest), index)
        for index, length in enumerate((*LENGTHS, case.longest))
    }
    for rid, ids in texts.items():
        world.embed(rid, ids, Pooling.MEAN, is_normalized=False)
    world.run()
    assert len(world.batches) == 1
    for rid, ids in texts.items():
        expected = pooled_states(hidden_states(theirs, ids).double().numpy(), Pooling.MEAN)
        np.testing.assert_allclose(world.embeddings[rid], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "mpnet", "modernbert"])
def test_texts_of_a_step_in_parts_on_two_threads_are_those_of_transformers(
    tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    path = save(tmp_path, case.base(), case.tokenizer())
    theirs = AutoModel.from_pretrained(path).eval()
    world = world_of(path, threads=2)
    lengths = np.array([30, 22, 41, 16, 30, 22, 41, 70], dtype=np.int32)
    assert len(equal_parts(lengths, 2)) == 2
    for number, length in enumerate(lengths.tolist()):
        world.embed(f"{number}", ids_of(length, number), Pooling.MEAN, is_normalized=False)
    world.run()
    assert len(world.batches) == 1
    for number, length in enumerate(lengths.tolist()):
        states = hidden_states(theirs, ids_of(length, number)).double().numpy()
        expected = pooled_states(states, Pooling.MEAN)
        np.testing.assert_allclose(world.embeddings[f"{number}"], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("pooling", Pooling)
def test_each_pooling_is_of_the_last_layers_states(
    tmp_path: Path, name: str, pooling: Pooling
) -> None:
    case = CASES[name]
    path = save(tmp_path, case.base(), case.tokenizer())
    theirs = AutoModel.from_pretrained(path).eval()
    world = world_of(path)
    ids = ids_of(20, 7)
    for is_normalized in (True, False):
        world.embed(f"{is_normalized}", ids, pooling, is_normalized=is_normalized)
    world.run()
    expected = pooled_states(hidden_states(theirs, ids).double().numpy(), pooling)
    np.testing.assert_allclose(world.embeddings["False"], expected, atol=1e-4, rtol=1e-4)
    unit = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(world.embeddings["True"], unit, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_may_have_a_head_that_fills_in_words(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    model = case.masked()
    path = save(tmp_path, model, case.tokenizer())
    theirs = AutoModel.from_pretrained(path).eval()
    world = world_of(path)
    world.embed("text", ids := ids_of(12, 1), Pooling.LAST, is_normalized=False)
    world.run()
    expected = hidden_states(theirs, ids)[-1].tolist()
    assert world.embeddings["text"] == pytest.approx(expected, abs=1e-4)


def test_old_names_of_norms_are_known(tmp_path: Path) -> None:
    case = CASES["bert"]
    path = save(tmp_path, case.base(), case.tokenizer())
    theirs = AutoModel.from_pretrained(path).eval()
    file = path / "model.safetensors"
    old = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(file).items()
    }
    save_file(old, file, metadata={"format": "pt"})
    world = world_of(path)
    world.embed("text", ids := ids_of(12, 1), Pooling.CLS, is_normalized=False)
    world.run()
    expected = hidden_states(theirs, ids)[0].tolist()
    assert world.embeddings["text"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("padding", [0, 3])
def test_positions_begin_behind_that_of_padding(tmp_path: Path, padding: int) -> None:
    config = roberta_config(pad_token_id=padding, type_vocab_size=2)
    path = save(tmp_path, RobertaModel(config), CASES["roberta"].tokenizer())
    theirs = AutoModel.from_pretrained(path).eval()
    world = world_of(path)
    longest = config.max_position_embeddings - padding - 1
    assert world.scheduler.kv.max_request_tokens == longest
    world.embed("text", ids := ids_of(longest, 1), Pooling.MEAN, is_normalized=False)
    world.run()
    expected = pooled_states(hidden_states(theirs, ids).double().numpy(), Pooling.MEAN)
    np.testing.assert_allclose(world.embeddings["text"], expected, atol=1e-4, rtol=1e-4)


def test_quantized_checkpoints_are_decoded(
    bert: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written, decoded = {}, {}
    for name, tensor in load_file(bert / "model.safetensors").items():
        written[name] = decoded[name] = tensor
        if "layer" in name and tensor.dim() == 2:
            written[name] = (tensor / 0.01).to(torch.float8_e4m3fn)
            written[f"{name}_scale"] = torch.tensor([0.01])
            decoded[name] = written[name].float() * 0.01
    fields = json.loads((bert / "config.json").read_bytes())
    ids, vectors = ids_of(20, 1), []
    for kind, tensors, more in (
        ("fp8", written, {"quantization_config": {"quant_method": "fp8"}}),
        ("plain", decoded, {}),
    ):
        path = tmp_path / kind
        path.mkdir()
        (path / "config.json").write_text(json.dumps(fields | more))
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        world = world_of(path)
        world.embed("text", ids, Pooling.MEAN)
        world.run()
        vectors.append(world.embeddings["text"])
    assert vectors[0] == vectors[1]
    assert "the weights are fp8 and are decoded while they load" in caplog.text


@pytest.fixture(scope="module")
def runner(bert: Path) -> EncoderRunner:
    return EncoderRunner(WorkerSettings(model=str(bert), threads=1))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = CASES["bert"]
    return save(tmp_path_factory.mktemp("bert"), case.base(), case.tokenizer())


@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=20),
    step_tokens=st.sampled_from([16, 64, 4096]),
)
def test_a_text_gives_the_same_numbers_whatever_runs_beside_it(
    runner: EncoderRunner, lengths: list[int], step_tokens: int
) -> None:
    world = world_around(runner, chunked_prefill_size=step_tokens)
    for index, length in enumerate(lengths):
        world.embed(f"{index}", ids_of(length, index), Pooling.MEAN)
    world.run()
    for batch in world.batches:  # whole texts, and no more of them than a step's budget
        assert (batch.extend_lens == batch.seq_lens).all()
        assert len(batch.extend_lens) == 1 or len(batch.input_ids) <= step_tokens
    assert sum(len(batch.extend_lens) for batch in world.batches) == len(lengths)
    alone = world_around(runner)
    for index, length in enumerate(lengths):
        alone.embed(f"{index}", ids_of(length, index), Pooling.MEAN)
        alone.run()
        assert world.embeddings[f"{index}"] == pytest.approx(alone.embeddings[f"{index}"], abs=1e-5)
    world.check_ownership()


def test_equal_texts_are_computed_anew_and_leave_nothing_behind(bert: Path) -> None:
    world = world_of(bert)
    for rid in ("first", "second"):
        world.embed(rid, ids_of(80, 1), Pooling.LAST)
        world.run()
    assert world.cached == {"first": 0, "second": 0}
    stats = world.scheduler.stats()
    assert (stats.pinned_tokens, stats.cached_tokens) == (0, 0)
