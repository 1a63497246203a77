"""Trains the model, and counts right answers on pictures that it never saw.

Run: python -m examples.vision.train --output examples/vision/shapes
Loss counts only on answers. Each picture is drawn anew, so none is seen twice.
"""

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional
from transformers import LlavaForConditionalGeneration, LlavaProcessor

from examples.models.train.muon import Muon
from examples.vision.checkpoint import (
    ASSISTANT,
    BOS,
    END,
    IMAGE,
    IMAGE_TOKENS,
    USER,
    make_model,
    make_processor,
    save,
)
from examples.vision.pictures import COUNTS, SHAPES, Scene, draw, scene

SEED = 1
HELD_OUT_SEED = 1_000_003
BATCH = 64
MUON_LR, ADAM_LR = 4e-3, 2e-3
WARMUP = 0.05  # share of the run
WHAT = (
    "What is in the picture?",
    "What is this?",
    "What do you see?",
    "Describe the picture.",
    "What does the image show?",
)
IGNORED = -100  # a label that has no loss

Turn = tuple[str, str]  # question and answer


@dataclass(frozen=True, slots=True)
class Example:
    picture: Image.Image
    turns: list[Turn]


def example(rng: random.Random) -> Example:
    shown = scene(rng)
    return Example(draw(shown, rng), turns_of(shown, rng))


def turns_of(shown: Scene, rng: random.Random) -> list[Turn]:
    """What the picture shows, and up to two more questions."""
    first = (rng.choice(WHAT), shown.caption)
    return [first, *(more(shown, rng) for _ in range(rng.randint(0, 2)))]


def more(shown: Scene, rng: random.Random) -> Turn:
    """A question about what the picture shows, and its answer."""
    shape = rng.choice(SHAPES)
    count = shown.count(shape)
    if rng.random() < 0.5:
        return f"How many {shape}s are there?", f"{COUNTS[count].capitalize()}."
    return f"Is there a {shape}?", "Yes." if count else "No."


def batch(
    processor: LlavaProcessor, examples: Sequence[Example]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    Returns:
        tokens: [batch, length], padded at the end
        mask: of the same shape, 0 where padded
        labels: of the same shape; only answers and the tokens that end them have one
        pixels: [batch, 3, IMAGE_SIDE, IMAGE_SIDE]
    """
    encode, pad = processor.tokenizer.encode, processor.tokenizer.pad_token_id
    rows: list[list[int]] = []
    labels: list[list[int]] = []
    for each in examples:
        row, label = encode(BOS), [IGNORED]
        for number, (question, answer) in enumerate(each.turns):
            picture = "" if number else IMAGE * IMAGE_TOKENS
            asked = encode(f"{USER}{picture}{question}{END}{ASSISTANT}")
            answered = encode(f"{answer}{END}")
            row += asked + answered
            label += [IGNORED] * len(asked) + answered
        rows.append(row)
        labels.append(label)
    length = max(map(len, rows))
    pixels = processor.image_processor([each.picture for each in examples], return_tensors="pt")
    return (
        torch.tensor([row + [pad] * (length - len(row)) for row in rows]),
        torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]),
        torch.tensor([label + [IGNORED] * (length - len(label)) for label in labels]),
        pixels["pixel_values"],
    )


def answer_loss(
    model: LlavaForConditionalGeneration, inputs: tuple[Tensor, Tensor, Tensor, Tensor]
) -> Tensor:
    """The mean cross entropy of the answers' tokens, in nats."""
    tokens, mask, labels, pixels = inputs
    hidden = model.model(
        input_ids=tokens, attention_mask=mask, pixel_values=pixels, use_cache=False
    )
    wanted = labels[:, 1:] != IGNORED
    logits = model.lm_head(hidden.last_hidden_state[:, :-1][wanted])
    return functional.cross_entropy(logits, labels[:, 1:][wanted])


def train(
    model: LlavaForConditionalGeneration, processor: LlavaProcessor, steps: int, rng: random.Random
) -> None:
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=MUON_LR, weight_decay=0.02),
        torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    start, mean = time.perf_counter(), 0.0
    for step in range(1, steps + 1):
        for optimizer, peak in zip(optimizers, (MUON_LR, ADAM_LR), strict=True):
            optimizer.param_groups[0]["lr"] = peak * learning_rate_scale(step / steps)
        loss = answer_loss(model, batch(processor, [example(rng) for _ in range(BATCH)]))
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        mean = loss.item() if step == 1 else 0.95 * mean + 0.05 * loss.item()
        if step % 100 == 0 or step == steps:
            seconds = time.perf_counter() - start
            print(f"step {step}/{steps}  loss {mean:.3f}  {seconds:.0f} s", flush=True)


def learning_rate_scale(progress: float) -> float:
    if progress < WARMUP:
        return progress / WARMUP
    return 0.5 + 0.5 * math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP))


@torch.no_grad()
def right_answers(
    model: LlavaForConditionalGeneration, processor: LlavaProcessor, examples: Sequence[Example]
) -> float:
    """The share of answers that are right to the letter, each after the right ones before it."""
    right, asked = 0, 0
    for start in range(0, len(examples), BATCH):
        tokens, mask, labels, pixels = batch(processor, examples[start : start + BATCH])
        found = model(input_ids=tokens, attention_mask=mask, pixel_values=pixels).logits[:, :-1]
        wrong = (found.argmax(-1) != labels[:, 1:]) & (labels[:, 1:] != IGNORED)
        end = processor.tokenizer.eos_token_id
        for row, errors in zip(labels[:, 1:].tolist(), wrong.tolist(), strict=True):
            is_right = True
            for label, error in zip(row, errors, strict=True):
                is_right &= not error
                if label == end:
                    right, asked, is_right = right + is_right, asked + 1, True
    return right / asked


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, required=True, help="folder to write")
    arguments.add_argument("--steps", type=int, default=2500)
    arguments.add_argument("--held-out", type=int, default=1000, help="pictures")
    options = arguments.parse_args()
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    words = [part for _ in range(2000) for turn in turns_of(scene(rng), rng) for part in turn]
    processor = make_processor(words)
    model = make_model(processor)
    print(f"{model.num_parameters()} parameters", flush=True)
    train(model, processor, options.steps, rng)
    save(model, processor, options.output)

    saved = LlavaForConditionalGeneration.from_pretrained(options.output, dtype=torch.float32)
    held_out = random.Random(HELD_OUT_SEED)
    examples = [example(held_out) for _ in range(options.held_out)]
    captions = [Example(each.picture, each.turns[:1]) for each in examples]
    print(f"captions of held-out pictures: {right_answers(saved, processor, captions):.1%} right")
    print(f"all answers: {right_answers(saved, processor, examples):.1%} right")


if __name__ == "__main__":
    main()
