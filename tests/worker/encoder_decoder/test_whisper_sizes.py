"""The published shapes of Whisper beside its plain ones, narrow and with random weights: tokens and
log-probabilities of transformers."""

from pathlib import Path

import pytest

from pando_worker.messages import LogprobsWanted
from tests.worker.encoder_decoder.checkpoints import START, whisper
from tests.worker.encoder_decoder.engines import ask, engines_of

# Encoders of 32 layers in the originals: here more layers than the decoder, or as many.
SIZES = {
    "large-v3": {"mels": 128, "vocab_size": 51_866, "encoder_layers": 5, "decoder_layers": 5},
    "turbo": {"mels": 128, "vocab_size": 51_866, "encoder_layers": 6, "decoder_layers": 4},
    "distil-large-v2": {"mels": 80, "vocab_size": 51_865, "encoder_layers": 6, "decoder_layers": 2},
    "distil-large-v3": {
        "mels": 128,
        "vocab_size": 51_866,
        "encoder_layers": 6,
        "decoder_layers": 2,
    },
}
COUNT = 6
PROMPTS = [[START], [START, 50_259, 50_360, 50_364], [START, *range(20, 43)]]


@pytest.mark.parametrize("kernels", ["off", "on"], ids=["torch", "kernels"])
@pytest.mark.parametrize("size", SIZES)
def test_outputs_are_those_of_transformers(tmp_path: Path, size: str, kernels: str) -> None:
    reference = whisper(tmp_path, **SIZES[size])
    with engines_of(reference.path, cpu_kernels=kernels) as worlds:
        world = worlds()
        for seed, prompt in enumerate(PROMPTS):
            wanted = LogprobsWanted()
            ask(world, str(seed), reference.source(seed), prompt, COUNT, logprobs=wanted)
        world.run()
        for seed, prompt in enumerate(PROMPTS):
            source = reference.source(seed)
            tokens = reference.greedy(source, prompt, COUNT)
            assert world.tokens[str(seed)] == tokens
            scores = reference.logits(source, [*prompt, *tokens[:-1]]).log_softmax(dim=-1)
            expected = [
                float(scores[len(prompt) - 1 + at, token]) for at, token in enumerate(tokens)
            ]
            found = [each.logprob for each in world.logprobs[str(seed)]]
            assert found == pytest.approx(expected, abs=1e-4)
        assert len({tuple(tokens) for tokens in world.tokens.values()}) == len(PROMPTS)
