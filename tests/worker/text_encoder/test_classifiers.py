"""Classifiers, cross-encoders and reward models through scheduler and model give the logits of
transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, Qwen2Config
from transformers import Qwen2ForSequenceClassification as Qwen2Classifier

from pando_worker.messages import Pooling
from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.models.kinds.classifier import Classifier, read_classifier
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.scheduler.world import World
from tests.worker.text_encoder.checkpoints import CASES, byte_level, save
from tests.worker.text_encoder.test_families import ids_of, world_of


def logits_of(path: Path, ids: list[int], **more: Any) -> list[float]:
    model = AutoModelForSequenceClassification.from_pretrained(path).eval()
    with torch.inference_mode():
        found: list[float] = model(torch.tensor([ids]), **more).logits[0].tolist()
    return found


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(tmp_path: Path, name: str, labels: int) -> None:
    case = CASES[name]
    path = save(tmp_path, case.classifier(labels), case.tokenizer())
    classifier = read_config(path).classifier
    assert classifier is not None and len(classifier.labels) == labels
    world = world_of(path)
    texts = {f"{length}": ids_of(length, length) for length in (1, 20, 57)}
    for rid, ids in texts.items():
        world.embed(rid, ids, classifier.pooling, is_normalized=False)
    world.run()
    for rid, ids in texts.items():
        assert world.embeddings[rid] == pytest.approx(logits_of(path, ids), abs=1e-4)


def test_the_second_text_of_a_pair_has_another_type(tmp_path: Path) -> None:
    case = CASES["bert"]
    path = save(tmp_path, case.classifier(1), case.tokenizer())
    world = world_of(path)
    ids = ids_of(30, 3)
    for second in (0, 1, 12, 29):
        world.embed(f"{second}", ids, Pooling.CLS, is_normalized=False, second=second)
    world.run()
    for second in (0, 1, 12, 29):
        kinds = torch.tensor([[int(second > 0 and index >= second) for index in range(30)]])
        expected = logits_of(path, ids, token_type_ids=kinds)
        assert world.embeddings[f"{second}"] == pytest.approx(expected, abs=1e-4)


def test_a_decoders_reward_is_that_of_its_last_token(tmp_path: Path) -> None:
    config = Qwen2Config(
        vocab_size=160,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        num_labels=1,
        pad_token_id=0,
    )
    path = save(tmp_path, Qwen2Classifier(config), byte_level())
    assert not read_config(path).has_head
    settings = WorkerSettings(model=str(path), page_size=4, max_total_tokens=400, threads=1)
    world = World(pages=100, chunked_prefill_size=16, runner=TorchModelRunner(settings))
    texts = {f"{length}": ids_of(length, length) for length in (1, 16, 45)}
    for _ in range(2):  # the second time from the cache
        for rid, ids in texts.items():
            world.embed(rid, ids, Pooling.LAST, is_normalized=False)
        world.run()
        for rid, ids in texts.items():
            assert world.embeddings[rid] == pytest.approx(logits_of(path, ids), abs=1e-4)
    assert world.cached["45"] > 0


CROSS = "BertForSequenceClassification"


@pytest.mark.parametrize(
    ("raw", "activation"),
    [
        ({"num_labels": 1}, "sigmoid"),
        ({"num_labels": 3}, "softmax"),
        ({"id2label": {"0": "a"}}, "sigmoid"),
        ({}, "softmax"),  # two labels, as in transformers
        ({"num_labels": 1, "problem_type": "regression"}, "identity"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, "identity"),
        ({"sbert_ce_default_activation_function": "torch.nn.Sigmoid"}, "sigmoid"),
    ],
)
def test_files_say_how_logits_become_scores(raw: dict[str, Any], activation: str) -> None:
    found = read_classifier(raw, CROSS, sees_all=True)
    assert found is not None and found.activation == activation


def test_labels_and_pooling_are_those_of_the_file() -> None:
    raw = {"id2label": {"0": "bad", "1": "good"}, "classifier_pooling": "mean"}
    expected = Classifier(("bad", "good"), Pooling.MEAN, "softmax")
    assert read_classifier(raw, CROSS, sees_all=True) == expected
    found = read_classifier({"num_labels": 1}, "Qwen2ForSequenceClassification", sees_all=False)
    assert found == Classifier(("LABEL_0",), Pooling.LAST, "sigmoid")
    assert read_classifier({"num_labels": 1}, "BertModel", sees_all=True) is None


def test_what_a_file_says_otherwise_is_refused() -> None:
    for count in (0, "3", True):
        with pytest.raises(BrokenCheckpoint, match="num_labels"):
            read_classifier({"num_labels": count}, CROSS, sees_all=True)
    with pytest.raises(UnsupportedModel, match="Tanh"):
        written = {"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}
        read_classifier(written, CROSS, sees_all=True)
