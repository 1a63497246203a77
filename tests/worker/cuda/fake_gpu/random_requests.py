"""Random requests to an engine on a GPU, a fake or a real one, and what their answers must be."""

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from pando_worker.messages import LogprobsWanted
from tests.worker.adapters.peft_adapters import BASE, PeftAdapters
from tests.worker.scheduler.world import World

# bfloat16 against float32, in log-probabilities. A wrong page or token changes them by far more.
TOLERANCE = 0.15


@dataclass(frozen=True)
class Asked:
    prompt: list[int]
    count: int
    adapter: str
    grammar: str | None
    sampling: dict[str, Any]


class Client:
    """Sends requests and aborts by chance, and checks each answer against transformers and peft.

    Attributes:
        happened: counts of what did
    """

    def __init__(
        self, world: World, truth: PeftAdapters, seed: int, tolerance: float = TOLERANCE
    ) -> None:
        self._tolerance = tolerance
        self.world, self._truth = world, truth
        self._random = random.Random(seed)
        self._roots = [self._tokens(self._random.randint(8, 40)) for _ in range(4)]
        self._asked: dict[str, Asked] = {}
        self.happened: Counter[str] = Counter()
        self._sent = 0
        self._calls = {name: world.load_adapter(str(path)) for name, path in truth.paths.items()}
        while len(world.identities) < len(self._calls):
            world.step()
            assert not world.refused, world.refused

    def run(self, steps: int, share: float = 0.35) -> None:
        """
        Args:
            share: of steps with a new request before them
        """
        for _ in range(steps):
            if self._random.random() < share and len(self._asked) < 40:
                self._send()
            if self._asked and self._random.random() < 0.03:
                self.world.abort(self._random.choice(list(self._asked)))
                self.happened["aborts"] += 1
            self.world.step()
            self._check_finished()
        self.world.run()
        self._check_finished()
        self.world.kv.check_idle()
        stats = self.world.scheduler.stats()
        self.happened["retractions"] = stats.retracted_requests_total
        self.happened["loads"] = stats.host_loaded_tokens_total

    def _send(self) -> None:
        rng, rid = self._random, f"r{self._sent}"
        self._sent += 1
        root = rng.choice(self._roots)[: rng.randint(1, 40)]
        prompt = [*root, *self._tokens(rng.randint(1, 12))]
        adapter = rng.choice([BASE, BASE, *self._calls])
        sampling: dict[str, Any] = {}
        if rng.random() < 0.5:
            limits = {"top_k": 20, "top_p": 0.9, "min_p": 0.02}
            sampling = {"temperature": rng.choice([0.5, 1.0]), "seed": rng.randrange(2**31)}
            sampling |= {name: limits[name] for name in limits if rng.random() < 0.5}
        if rng.random() < 0.2:
            sampling |= {"frequency_penalty": 0.5, "repetition_penalty": 1.2}
        grammar = rng.choice([None, None, None, "even"])
        asked = Asked(prompt, rng.randint(1, 40), adapter, grammar, sampling)
        self._asked[rid] = asked
        self.world.send(
            rid,
            prompt,
            asked.count,
            logprobs=LogprobsWanted(top=2) if rng.random() < 0.8 else None,
            grammar=grammar,
            adapter=b"" if adapter == BASE else self.world.identities[self._calls[adapter]],
            **sampling,
        )

    def _check_finished(self) -> None:
        assert not self.world.rejected, self.world.rejected  # as if logits are not finite
        for rid in [rid for rid in self._asked if rid in self.world.finish]:
            self._check(rid, self._asked.pop(rid))

    def _check(self, rid: str, asked: Asked) -> None:
        world, produced = self.world, self.world.tokens[rid]
        reason = world.finish[rid]
        assert reason in ("length", "abort"), (rid, reason, asked)
        if reason == "length":
            assert len(produced) == asked.count
        if not produced:
            return
        self.happened[asked.grammar or ("drawn" if asked.sampling else "greedy")] += 1
        self.happened["with adapters"] += asked.adapter != BASE
        self.happened["tokens"] += len(produced)
        if asked.grammar == "even":
            assert all(token % 2 == 0 for token in produced), (rid, produced)
        tokens = asked.prompt + produced
        logits = self._truth.all_logits(asked.adapter, tokens)[len(asked.prompt) - 1 : -1]
        truth = logits.double().log_softmax(-1)
        found = world.logprobs[rid]
        for step, one in enumerate(found):
            own = torch.tensor([one.logprob, *one.top_logprobs], dtype=torch.float64)
            expected = truth[step][[produced[step], *one.top_ids]]
            worst = float((own - expected).abs().max())
            assert worst < self._tolerance, (rid, step, worst, asked)
        if not asked.sampling and asked.grammar is None:
            best = truth.max(-1).values - truth.gather(1, torch.tensor(produced)[:, None])[:, 0]
            assert float(best.max()) < self._tolerance, (rid, asked)

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(97) for _ in range(count)]
