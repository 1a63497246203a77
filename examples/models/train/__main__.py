"""Trains the tokenizer and the model, logs to standard output, and writes them to `--output`."""

import argparse
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .chats import conversations
from .corpus import Module, read_corpus
from .muon import Muon
from .tokenizer import BOS, END, MAX_LENGTH, VOCAB_SIZE, save_tokenizer, train_tokenizer

SEED = 1
HELD_OUT_EVERY = 40  # every 40th module is kept for the held-out loss
HELD_OUT_TOKENS = 16_384
MUON_LR, ADAM_LR, WEIGHT_DECAY = 1e-2, 4e-3, 0.05
WARMUP = 0.04  # share of the run


@dataclass(frozen=True)
class Phase:
    """`tokens` are what the phase trains on, in batches of `batch` sequences of `length` tokens."""

    tokens: int
    batch: int
    length: int
    max_turns: int

    @property
    def steps(self) -> int:
        return self.tokens // (self.batch * self.length)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", type=Path, required=True, help="folder to write")
    arguments.add_argument("--tokens", type=int, default=3_600_000, help="tokens to train on")
    options = arguments.parse_args()

    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the same sums in the same order on any machine
    rng = random.Random(SEED)
    modules = read_corpus()
    held_out = modules[::HELD_OUT_EVERY]
    training = [module for index, module in enumerate(modules) if index % HELD_OUT_EVERY]

    tokenizer = train_tokenizer(tokenizer_texts(training, rng))
    model = LlamaForCausalLM(model_config(tokenizer))
    print(
        f"{sum(len(p) for m in training for p in m.paragraphs)} characters of prose, "
        f"{sum(len(m.entries) for m in training)} entries, {model.num_parameters()} parameters"
    )
    phases = [
        Phase(int(options.tokens * 0.85), batch=2, length=512, max_turns=5),
        Phase(int(options.tokens * 0.15), batch=1, length=2048, max_turns=16),
    ]
    train(model, tokenizer, training, phases, rng)
    print(f"held-out loss {held_out_loss(model, tokenizer, held_out):.3f}")

    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.bos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=0.4,
        top_p=0.9,
    )
    model.to(torch.bfloat16).save_pretrained(options.output)
    save_tokenizer(tokenizer, options.output)


def tokenizer_texts(modules: list[Module], rng: random.Random) -> list[str]:
    entries = [entry for module in modules for entry in module.entries]
    messages = [message for chat in conversations(entries, rng, max_turns=2) for message in chat]
    prose = [paragraph for module in modules for paragraph in module.paragraphs]
    return prose + [part for message in messages for part in message.values()]


def model_config(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        initializer_range=0.02,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    modules: list[Module],
    phases: list[Phase],
    rng: random.Random,
) -> None:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=MUON_LR, weight_decay=WEIGHT_DECAY),
        torch.optim.AdamW(others, lr=ADAM_LR, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    peaks = [MUON_LR, ADAM_LR]
    total = sum(phase.steps for phase in phases)
    step, seen, mean, start = 0, 0, 0.0, time.perf_counter()
    for phase in phases:
        stream = batches(tokenizer, modules, phase, rng)
        for _ in range(phase.steps):
            scale = learning_rate_scale(step / total)
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * scale
            loss = next_token_loss(model, next(stream))
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(others, 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            seen += phase.batch * phase.length
            mean = loss.item() if step == 1 else 0.98 * mean + 0.02 * loss.item()
            if step % 100 == 0 or step == total:
                seconds = time.perf_counter() - start
                print(
                    f"step {step}/{total}  tokens {seen}  loss {mean:.3f}  "
                    f"{seconds:.0f} s  {seen / seconds:.0f} tokens/s",
                    flush=True,
                )


def learning_rate_scale(progress: float) -> float:
    if progress < WARMUP:
        return (progress + 1e-3) / (WARMUP + 1e-3)
    return 0.5 + 0.5 * math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP))


def next_token_loss(model: LlamaForCausalLM, tokens: Tensor) -> Tensor:
    """`tokens`: [batch, length + 1]; the mean cross entropy of all but the first, in nats."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def batches(
    tokenizer: PreTrainedTokenizerFast, modules: list[Module], phase: Phase, rng: random.Random
) -> Iterator[Tensor]:
    """Endless: epoch after epoch of shuffled documents, packed into shuffled rows, no padding."""
    row = phase.length + 1
    while True:
        texts = documents(tokenizer, modules, phase.max_turns, rng)
        rng.shuffle(texts)
        tokens = [token for ids in tokenizer(texts, verbose=False)["input_ids"] for token in ids]
        rows = [tokens[start : start + row] for start in range(0, len(tokens) - row, row)]
        rng.shuffle(rows)  # spreads a long document over many batches
        for start in range(0, len(rows) - phase.batch, phase.batch):
            yield torch.tensor(rows[start : start + phase.batch])


def documents(
    tokenizer: PreTrainedTokenizerFast, modules: list[Module], max_turns: int, rng: random.Random
) -> list[str]:
    """One epoch: each module's prose as one text, and chats about each of its entries."""
    texts = [BOS + "\n\n".join(module.paragraphs) + END for module in modules]
    entries = [entry for module in modules for entry in module.entries]
    chats = conversations(entries, rng, max_turns)
    return texts + [str(tokenizer.apply_chat_template(chat, tokenize=False)) for chat in chats]


@torch.no_grad()
def held_out_loss(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, modules: list[Module]
) -> float:
    phase = Phase(HELD_OUT_TOKENS, batch=4, length=512, max_turns=5)
    stream = batches(tokenizer, modules, phase, random.Random(SEED))
    return (
        sum(next_token_loss(model, next(stream)).item() for _ in range(phase.steps)) / phase.steps
    )


if __name__ == "__main__":
    main()
