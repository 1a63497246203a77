"""A cost model of four numbers."""

from dataclasses import dataclass

from pando_sim.cost.model import CostModel


@dataclass(frozen=True)
class LinearCost(CostModel):
    """None of its numbers is a binary fraction, so sums depend on their order."""

    step: float = 0.011
    token: float = 0.0013
    pair: float = 3e-7
    handling: float = 0.0017
    name: str = "linear"
    source: str = "a test"
    kv_bytes_per_token: int = 1000
    copy_bytes_per_s: float = 1e7

    def request_s(self, prompt_tokens: int) -> float:
        return self.handling

    def step_s(
        self,
        prefill_tokens: int = 0,
        prefill_context: int = 0,
        decodes: int = 0,
        decode_context: int = 0,
    ) -> float:
        tokens, pairs = prefill_tokens + decodes, prefill_context + decode_context
        return self.step + self.token * tokens + self.pair * pairs

    def decode_steps(self, steps: int, decodes: int, decode_context: int) -> list[float]:
        return [
            self.step_s(0, 0, decodes, decode_context + decodes * step) for step in range(steps)
        ]
