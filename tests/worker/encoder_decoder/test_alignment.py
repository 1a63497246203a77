"""The weights of alignment heads, as transformers computes them for its words' times."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers.models.whisper.generation_whisper import _median_filter

from pando_worker.messages import Align
from tests.worker.encoder_decoder.checkpoints import MODELS, START, Inputs, SourceReference, sent
from tests.worker.encoder_decoder.engines import Worlds, ask, engines_of
from tests.worker.vision.two_ranks import on_two_ranks

HEADS = [[0, 3], [1, 0], [1, 2]]
TOKENS = [START, 9, 8, *range(20, 39)]
FIRST, POSITIONS = 3, 23


@pytest.fixture(scope="module", params=MODELS)
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SourceReference:
    reference = MODELS[request.param](tmp_path_factory.mktemp("model"))
    path = reference.path / "generation_config.json"
    config = json.loads(path.read_bytes()) | {"alignment_heads": HEADS}
    path.write_text(json.dumps(config), encoding="utf-8")
    reference.model.set_attn_implementation("eager")
    return reference


@pytest.fixture(scope="module")
def worlds(reference: SourceReference) -> Iterator[Worlds]:
    with engines_of(reference.path) as worlds:
        yield worlds


def by_transformers(reference: SourceReference, source: Inputs) -> np.ndarray:
    name = "input_features" if source.ndim == 2 else "input_ids"
    with torch.inference_mode():
        seen = reference.model(
            **{name: torch.from_numpy(source)[None]},
            decoder_input_ids=torch.tensor([TOKENS]),
            output_attentions=True,
        ).cross_attentions
    weights = torch.stack([seen[layer][0, head] for layer, head in HEADS])
    weights = weights[:, FIRST:, :POSITIONS]
    std, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    smoothed: np.ndarray = _median_filter((weights - mean) / std, 7).mean(dim=0).numpy()
    return smoothed


def align(source: Inputs, rid: str = "words") -> Align:
    return Align(rid=rid, input_ids=TOKENS, first=FIRST, source=sent(source), positions=POSITIONS)


def found(weights: bytes) -> np.ndarray:
    return np.frombuffer(weights, dtype="<f4").reshape(len(TOKENS) - FIRST, POSITIONS)


@pytest.mark.parametrize("chunk", [4096, 8])
def test_weights_are_those_of_transformers(
    reference: SourceReference, worlds: Worlds, chunk: int
) -> None:
    """In one step and in several, beside another request, from a cached encoding."""
    world, source = worlds(chunked_prefill_size=chunk), reference.source(1)
    ask(world, "text", source, TOKENS[:5], 6)
    world.run()
    ask(world, "beside", reference.source(2), TOKENS[:5], 6)
    world.collect(world.scheduler.receive(align(source)))
    world.run()
    assert world.rejected == {}
    expected = by_transformers(reference, source)
    # The score divides by how much a weight varies, which for some of the text models is little.
    atol = 2e-4 if source.ndim == 2 else 2e-3
    np.testing.assert_allclose(found(world.aligned["words"]), expected, atol=atol)
    assert world.kv.sources is not None
    assert world.kv.sources.encoded_total == 2
    assert world.tokens["beside"] == reference.greedy(reference.source(2), TOKENS[:5], 6)


@pytest.mark.parametrize("reference", ["whisper"], indirect=True)
def test_heads_of_two_ranks_are_put_together(reference: SourceReference) -> None:
    source = reference.source(1)
    with on_two_ranks(reference.path) as world:
        world.collect(world.scheduler.receive(align(source)))
        world.run()
    expected = by_transformers(reference, source)
    np.testing.assert_allclose(found(world.aligned["words"]), expected, atol=2e-4)


@pytest.mark.parametrize("reference", ["whisper"], indirect=True)
def test_what_cannot_be_aligned_is_refused(reference: SourceReference, worlds: Worlds) -> None:
    world, source = worlds(), reference.source(1)
    for rid, first, positions in (("first", len(TOKENS), 5), ("none", 3, 0), ("more", 3, 31)):
        command = Align(
            rid=rid, input_ids=TOKENS, first=first, source=sent(source), positions=positions
        )
        world.collect(world.scheduler.receive(command))
        assert world.rejected[rid].status == 400
