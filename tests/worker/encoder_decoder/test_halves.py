"""Decoders whose weights stay in the checkpoint's 16 bits."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pando_worker.models.config import read_config
from pando_worker.models.layers.seq2seq import EncoderDecoder
from pando_worker.models.layers.weight import PlainWeight
from pando_worker.models.loading.building import build_model
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.loading.schemes.stored import AsStored
from tests.worker.encoder_decoder.checkpoints import START, SourceReference, t5, whisper
from tests.worker.encoder_decoder.engines import ask, engines_of

PROMPT, COUNT = [START, 61, 62], 12
CPU = torch.device("cpu")


@pytest.fixture(
    scope="module",
    params=[(whisper, torch.float16), (t5, torch.bfloat16)],
    ids=["whisper-float16", "t5-bfloat16"],
)
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SourceReference:
    """In float32, with weights that 16 bits hold; its checkpoint has these."""
    make: Callable[[Path], SourceReference]
    make, dtype = request.param
    found = make(tmp_path_factory.mktemp("model"))
    found.model.to(dtype).save_pretrained(found.path)
    found.model.float()
    return found


def built(reference: SourceReference, scheme: AsStored | None) -> EncoderDecoder:
    config = read_config(reference.path)
    model = build_model(config, torch.float32, CPU, scheme=scheme)
    assert isinstance(model, EncoderDecoder)
    return model


def test_the_decoders_matrices_have_16_bits_and_the_checkpoints_numbers(
    reference: SourceReference,
) -> None:
    model, wide = built(reference, AsStored()), built(reference, None)
    load_weights(model, reference.path, CPU, AsStored())
    load_weights(wide, reference.path, CPU)
    weights = [each for each in model.decoder_side.modules() if isinstance(each, PlainWeight)]
    matrices = [weight.matrix for weight in weights]
    assert {matrix.dtype for matrix in matrices} <= {torch.float16, torch.bfloat16}
    pairs = list(zip(model.parameters(), wide.parameters(), strict=True))
    assert sum(mine.itemsize == 2 for mine, _ in pairs) == len(matrices) > 10
    assert {other.dtype for _, other in pairs} == {torch.float32}
    assert all(torch.equal(mine.float(), other) for mine, other in pairs)


def test_tokens_are_those_of_transformers(reference: SourceReference) -> None:
    sources = [reference.source(seed) for seed in range(5)]
    with engines_of(reference.path, cpu_kernels="on") as worlds:
        world = worlds()
        for index, source in enumerate(sources):
            ask(world, str(index), source, PROMPT, COUNT)
        world.run()
        found = [world.tokens[str(index)] for index in range(len(sources))]
    assert found == [reference.greedy(source, PROMPT, COUNT) for source in sources]
