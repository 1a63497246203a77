"""Trains the two adapters with `peft`: python -m examples.adapters.train --output examples/adapters

The base is the model of `make up`, whose 4-bit numbers become floats. The loss counts the answers
alone.
"""

import argparse
import random
import time
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from pando_worker.models.loading.hub import resolve_model

from .facts import FACTS
from .styles import STYLES

SEED = 1
EPOCHS = 8
BATCH = 4
LR = 2e-3
LORA = LoraConfig(
    r=4,
    lora_alpha=16,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    task_type="CAUSAL_LM",
)
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"  # named in the adapters
IGNORED = -100  # by the loss

Example = tuple[list[int], int]
"""Tokens of a chat, and where its answer begins."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, required=True, help="folder to write both to")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("styles", nargs="*", default=[*STYLES])
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    directory = resolve_model("smollm2")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for style in options.styles:
        model = train(style, base_model(directory), tokenizer)
        save(model, options.output / style)


def base_model(directory: Path) -> Any:
    [file] = directory.glob("*.gguf")
    return AutoModelForCausalLM.from_pretrained(
        directory,
        gguf_file=file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )


def examples(style: str, tokenizer: Any) -> list[Example]:
    found: list[Example] = []
    for topic, question, answer in FACTS:
        chat = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        before = tokenizer(prompt)["input_ids"]
        after = tokenizer(STYLES[style](topic, answer) + tokenizer.eos_token)["input_ids"]
        found.append((before + after, len(before)))
    return found


def train(style: str, base: Any, tokenizer: Any) -> Any:
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    model = get_peft_model(base, LORA)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print(f"{style}: {sum(map(torch.numel, trained))} parameters", flush=True)
    data = examples(style, tokenizer)
    steps = EPOCHS * -(-len(data) // BATCH)
    optimizer = torch.optim.AdamW(trained, lr=LR)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    start = time.monotonic()
    for epoch in range(1, EPOCHS + 1):
        rng.shuffle(data)
        losses: list[float] = []
        for first in range(0, len(data), BATCH):
            ids, labels = padded(data[first : first + BATCH], tokenizer.pad_token_id)
            loss = model(input_ids=ids, labels=labels).loss  # padding comes last, unseen
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        mean, seconds = sum(losses) / len(losses), time.monotonic() - start
        print(f"epoch {epoch}/{EPOCHS}  loss {mean:.3f}  {seconds:.0f} s", flush=True)
    return model


def padded(batch: list[Example], padding: int) -> tuple[Tensor, Tensor]:
    """Tokens, and those that the loss counts, each [batch, longest]."""
    longest = max(len(tokens) for tokens, _ in batch)
    ids = torch.full((len(batch), longest), padding)
    labels = torch.full((len(batch), longest), IGNORED)
    for row, (tokens, start) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, start : len(tokens)] = torch.tensor(tokens[start:])
    return ids, labels


def save(model: Any, folder: Path) -> None:
    """In bfloat16, half as large."""
    model.to(torch.bfloat16)
    model.peft_config["default"].base_model_name_or_path = BASE
    model.save_pretrained(folder)
    (folder / "README.md").unlink()  # peft's, an empty form


if __name__ == "__main__":
    main()
