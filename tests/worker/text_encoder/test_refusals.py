"""What text encoders refuse while they load."""

import json
from pathlib import Path

import pytest

from pando_worker.models.config import read_config
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel
from pando_worker.runner.encoder_runner import EncoderRunner
from pando_worker.settings import WorkerSettings
from tests.worker.text_encoder.checkpoints import CASES, save


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = CASES["bert"]
    return save(tmp_path_factory.mktemp("bert"), case.base(), case.tokenizer())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size 2 is not for"),
        ({"quantization": "int8"}, "quantization int8 is not for"),
        ({"max_loras": 2}, "max_loras is not for"),
        ({"host_memory_gib": 1}, "host_memory_gib is not for"),
        ({"model_impl": "transformers"}, "model_impl transformers is not for"),
        ({"context_length": 91}, "context_length 91 exceeds the 90 tokens"),
    ],
)
def test_settings_that_they_lack_are_refused(
    bert: Path, settings: dict[str, object], problem: str
) -> None:
    fields = {"model": str(bert), "threads": 1, **settings}
    with pytest.raises(UnsupportedModel, match=problem):
        EncoderRunner(WorkerSettings.model_validate(fields))


@pytest.mark.parametrize(
    ("name", "fields", "problem"),
    [
        ("roberta", {"pad_token_id": -1}, "pad_token_id = -1"),
        ("roberta", {"pad_token_id": "1"}, "pad_token_id = '1'"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings = 2.* at least 3"),
        ("mpnet", {"max_position_embeddings": 2}, "max_position_embeddings = 2.* at least 3"),
        ("bert", {"max_position_embeddings": 0}, "max_position_embeddings"),
    ],
)
def test_numbers_of_positions_that_cannot_be_are_refused(
    tmp_path: Path, name: str, fields: dict[str, object], problem: str
) -> None:
    case = CASES[name]
    path = save(tmp_path, case.base(), case.tokenizer()) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))
    with pytest.raises(BrokenCheckpoint, match=problem):
        read_config(tmp_path)
