"""Random requests, and the correct outputs by transformers."""

import random
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, RepetitionPenaltyLogitsProcessor

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.grammar.grammar import Grammar
from pando_worker.runner.sampling.sampler import uniforms
from pando_worker.scheduler.batches.constrained import MIN_JUMP
from pando_worker.server.jobs.constraints import grammar_of
from tests.fuzz.models import SHIPPED, VOCAB

EOS = 1  # a frequent token instead of the model's own, so that requests end
# Two scores this close may swap with the order of a float32 sum, and a draw this close to the
# border
# between two tokens may be either.
TIE = 2e-4
BORDER = 1e-4

PATTERNS = [
    r"[a-f]{3,20}",
    r"(yes|no|maybe), because of (this|that)",
    r"\{\"name\": \"[a-z]{1,8}\", \"size\": [0-9]{1,3}\}",
    r"([0-9]{1,3}\.){3}[0-9]{1,3}",
]


@dataclass(frozen=True)
class Asked:
    rid: str
    prompt: list[int]
    max_new_tokens: int
    pattern: str | None
    stop_token_ids: list[int]
    sampling: dict[str, Any] = field(default_factory=dict)

    @property
    def grammar(self) -> str | None:
        return None if self.pattern is None else grammar_of(regex=self.pattern)


class Crowd:
    """Prompts share prefixes, like those of conversations."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = 0
        self._prefixes = [self._tokens(rng.randint(1, 120)) for _ in range(3)]

    def ask(self, longest: int) -> list[Asked]:
        """One request, or several for one prompt: greedy ones of different lengths, or sampled ones
        with different seeds, as in parallel sampling."""
        rng = self._rng
        prompt = self._tokens(rng.randint(1, 40))
        if rng.random() < 0.7:
            prefix = rng.choice(self._prefixes)
            prompt = prefix[: rng.randint(1, len(prefix))] + prompt
        prompt = prompt[: longest - 1]
        pattern = rng.choice(PATTERNS) if rng.random() < 0.3 else None
        sampling: dict[str, Any] = {}
        if rng.random() < 0.2:
            sampling["repetition_penalty"] = rng.choice([0.8, 1.2, 1.5])
        if rng.random() < 0.2:
            sampling["presence_penalty"] = rng.choice([-1.0, 1.0])
            sampling["frequency_penalty"] = rng.choice([-0.5, 0.5])
        if rng.random() < 0.2:
            sampling["logit_bias"] = {rng.randrange(VOCAB): rng.choice([-100.0, 3.0])}
        if rng.random() < 0.2 and pattern is None:
            sampling["min_new_tokens"] = rng.randint(1, 8)
        draws = rng.random() < 0.3
        most = longest - len(prompt)
        shared = min(rng.randint(1, 90), most)
        asked = []
        for _ in range(rng.choice([1, 2, 5] if draws else [1, 1, 1, 3])):
            self._count += 1
            own = {"temperature": 1.0, "seed": rng.randrange(2**40)} if draws else {}
            asked.append(
                Asked(
                    rid=f"r{self._count}",
                    prompt=prompt,
                    max_new_tokens=shared if draws else min(rng.randint(1, 90), most),
                    pattern=pattern,
                    stop_token_ids=[EOS] if pattern else [rng.randrange(300) for _ in range(40)],
                    sampling=sampling | own,
                )
            )
        return asked

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(3, VOCAB) for _ in range(count)]


class Truth:
    """The correct tokens, greedy or sampled, from transformers' float32 logits with the request's
    edits."""

    def __init__(self, grammars: GrammarCompiler) -> None:
        self._grammars = grammars
        self._tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
        self.ties = 0
        self.jumps = 0  # jumps whose first token differs from the sampled one

    def check(self, model: Any, asked: Asked, produced: list[int], ended_by_stop: bool) -> None:
        """Raises AssertionError if a token is wrong, given the previous ones."""
        ids = torch.tensor([asked.prompt + produced])
        with torch.inference_mode():
            logits = model(ids).logits[0, len(asked.prompt) - 1 : -1].double()
        text = asked.grammar
        grammar = None if text is None else self._grammars.compile(text).result()
        step = 0
        while step < len(produced):
            scores = self._edited(logits[step], asked, produced[:step])
            try:
                if grammar is None:
                    assert self._is_right(scores, produced[step], asked, step)
                    step += 1
                else:
                    step += self._follow(grammar, scores, produced, asked, step)
            except AssertionError as error:
                raise AssertionError(f"token {step} of {produced}: {error}; {asked}") from None
        self._check_end(asked, produced, ended_by_stop)

    def _follow(
        self, grammar: Grammar, scores: Tensor, produced: list[int], asked: Asked, step: int
    ) -> int:
        """Advance in the grammar along the output. Returns the number of tokens: one correct token,
        or those of forced text."""
        mask = np.full(VOCAB // 32, -1, dtype=np.int32)
        grammar.fill_mask(mask)
        allowed = np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
        scores[torch.from_numpy(~allowed)] = -torch.inf
        is_forced = int(allowed.sum()) == 1  # whatever the draw
        left = produced[step:]
        for token in np.flatnonzero(allowed).tolist():
            if not (is_forced or self._is_right(scores, token, asked, step)):
                continue
            assert grammar.accept(token)
            forced = grammar.fast_forward()
            grammar.rollback(1)
            new = [token]
            if len(forced) >= MIN_JUMP and step + 1 < asked.max_new_tokens:
                text = self._tokenizer.decode([token, *forced])
                new = self._tokenizer.encode(text, add_special_tokens=False)[: len(left)]
                self.jumps += new[0] != token
            if left[: len(new)] == new:
                assert all(map(grammar.accept, new))
                return len(new)
        raise AssertionError("no correct token begins like this")

    def _is_right(self, scores: Tensor, token: int, asked: Asked, step: int) -> bool:
        """Whether it is the best token, or the one where the cumulative probabilities exceed the
        draw."""
        if not asked.sampling.get("temperature"):
            gap = float(scores.max() - scores[token])
            self.ties += 0 < gap <= TIE
            return gap <= TIE
        upto = scores.softmax(0).cumsum(0)
        seeds, steps = np.array([asked.sampling["seed"]]), np.array([step])
        [draw] = uniforms(seeds, steps).tolist()
        below, above = float(upto[token - 1]) if token else 0.0, float(upto[token])
        if scores[token] == -torch.inf or not below - BORDER <= draw <= above + BORDER:
            return False
        self.ties += not below <= draw <= above
        return True

    def _check_end(self, asked: Asked, produced: list[int], ended_by_stop: bool) -> None:
        if not ended_by_stop:
            assert len(produced) == asked.max_new_tokens
            return
        if asked.pattern is None:
            assert produced[-1] in asked.stop_token_ids
            return
        whole = [token for token in produced if token != EOS]
        text = self._tokenizer.decode(whole)
        assert re.fullmatch(asked.pattern, text), f"{asked.pattern} does not match {text!r}"

    @staticmethod
    def _edited(logits: Tensor, asked: Asked, before: list[int]) -> Tensor:
        sampling, scores = asked.sampling, logits.clone()
        for token, bias in sampling.get("logit_bias", {}).items():
            scores[token] += bias
        if len(before) < sampling.get("min_new_tokens", 0):
            scores[asked.stop_token_ids] = -torch.inf
        if penalty := sampling.get("repetition_penalty"):
            history = torch.tensor([asked.prompt + before])
            scores = RepetitionPenaltyLogitsProcessor(penalty)(history, scores[None])[0]
        counts = np.bincount(before, minlength=VOCAB) if before else np.zeros(VOCAB)
        counted = torch.from_numpy(counts).double()
        scores -= sampling.get("frequency_penalty", 0.0) * counted
        scores -= sampling.get("presence_penalty", 0.0) * (counted > 0)
        return scores
