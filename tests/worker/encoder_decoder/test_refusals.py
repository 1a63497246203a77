"""What encoder-decoders refuse, while they load and when a request comes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pando_worker.messages import (
    Embed,
    Generate,
    Pooling,
    Probe,
    SamplingParams,
    Source,
    SpeechRules,
)
from pando_worker.models.config import read_config
from pando_worker.models.errors import DoesNotFit, UnsupportedModel
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.encoder_decoder.checkpoints import START, SourceReference, sent, whisper
from tests.worker.encoder_decoder.engines import Worlds, engines_of
from tests.worker.scheduler.world import World


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SourceReference:
    return whisper(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def worlds(reference: SourceReference) -> Iterator[Worlds]:
    with engines_of(reference.path) as worlds:
        yield worlds


def test_other_encoder_decoders_are_refused_by_name(tmp_path: Path) -> None:
    fields = {
        "architectures": ["PegasusForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": 10,
        "max_position_embeddings": 8,
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(UnsupportedModel, match=r"encoder-decoders; of such.*Whisper"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"quantization": "int8"}, {"max_loras": 2}, {"device": "cuda"}]
)
def test_settings_that_they_lack_are_refused_while_they_load(
    reference: SourceReference, settings: dict[str, object]
) -> None:
    with pytest.raises(UnsupportedModel, match="is an encoder-decoder, and these do not run with"):
        TorchModelRunner(
            WorkerSettings.model_validate({"model": str(reference.path), "threads": 1, **settings})
        )


def test_a_pool_without_room_for_a_source_and_a_page_does_not_fit(
    reference: SourceReference,
) -> None:
    fields = {"model": str(reference.path), "threads": 1, "page_size": 4, "cpu_kernels": "off"}
    with pytest.raises(DoesNotFit, match="holds 32 tokens, and a request needs 36"):
        TorchModelRunner(WorkerSettings.model_validate({**fields, "max_total_tokens": 32}))
    TorchModelRunner(WorkerSettings.model_validate({**fields, "max_total_tokens": 36}))


def generate(source: Source | None, **fields: object) -> Generate:
    sampling = SamplingParams(max_new_tokens=4)
    return Generate(rid="r", input_ids=[START, 5], sampling=sampling, source=source, **fields)  # type: ignore[arg-type]


def refusal(world: World, command: Generate | Embed) -> str:
    world.rejected.clear()
    world.tokens["r"] = []
    world.collect(world.scheduler.receive(command))
    assert world.rejected["r"].status == 400
    return world.rejected["r"].message


def test_a_request_that_does_not_fit_the_encoder_gets_400(
    reference: SourceReference, worlds: Worlds
) -> None:
    world, good = worlds(), sent(reference.source(1))
    assert "has none" in refusal(world, generate(None))
    assert "features" in refusal(world, generate(sent(reference.source(1)[:, :10])))
    short = Source(digest=b"1", length=good.length, array=good.array)
    assert "digest" in refusal(world, generate(short))
    for probe in (Probe(position=2, token_ids=(1,)), Probe(position=0, token_ids=(120,))):
        assert "the probe" in refusal(world, generate(good, probe=probe))
    rules = SpeechRules(end_token=2, suppressed=(120,))
    assert "vocabulary" in refusal(world, generate(good, rules=rules))
    assert "either" in refusal(
        world, generate(good, rules=SpeechRules(end_token=2), grammar="even")
    )
    embed = Embed(rid="r", input_ids=[1], pooling=Pooling.LAST)
    assert "no embeddings" in refusal(world, embed)


def test_other_models_refuse_sources(reference: SourceReference) -> None:
    command = generate(sent(reference.source(1)))
    assert "no encoder" in refusal(World(), command)
