"""The forms of a layer's experts in checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

from pando_worker.models.build import Fill
from pando_worker.models.layers.experts import MixtureOfExperts

ALL = slice(None)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Each matrix of each expert is a separate tensor, like any linear layer's.

    Attributes are names relative to the decoder layer; `{}` is the expert's number.
    """

    router: str
    gate: str
    up: str
    down: str

    def fills(self, moe: MixtureOfExperts) -> Iterator[Fill]:
        experts, hidden_size = moe.router.shape
        total, taken = moe.rows
        mine, every = slice(taken.start, taken.stop), slice(0, hidden_size)
        yield Fill(
            f"{self.router}.weight", tuple(moe.router.shape), (slice(0, experts), every), moe.router
        )
        for expert in range(experts):
            gate, up = moe.gate_up[expert].chunk(2)
            for name, memory in ((self.gate, gate), (self.up, up)):
                yield Fill(
                    f"{name.format(expert)}.weight", (total, hidden_size), (mine, every), memory
                )
            yield Fill(
                f"{self.down.format(expert)}.weight",
                (hidden_size, total),
                (every, mine),
                moe.down[expert],
            )


@dataclass(frozen=True, slots=True)
class StackedByInput:
    """One tensor for all experts, as in GPT-OSS: inputs before outputs, gate and up interleaved.

    Attributes are names relative to the decoder layer; router and experts have biases.
    """

    router: str
    gate_up: str
    down: str

    def fills(self, moe: MixtureOfExperts) -> Iterator[Fill]:
        assert moe.router_bias is not None
        assert moe.gate_up_bias is not None and moe.down_bias is not None
        experts, hidden_size = moe.router.shape
        total, taken = moe.rows
        mine, every = slice(taken.start, taken.stop), slice(0, hidden_size)
        both = slice(2 * taken.start, 2 * taken.stop)
        all_experts = slice(0, experts)
        yield Fill(
            f"{self.router}.weight", (experts, hidden_size), (all_experts, every), moe.router
        )
        yield Fill(f"{self.router}.bias", (experts,), (all_experts,), moe.router_bias)
        yield Fill(
            f"{self.gate_up}_bias", (experts, 2 * total), (all_experts, both), moe.gate_up_bias
        )
        yield Fill(f"{self.down}_bias", (experts, hidden_size), (all_experts, every), moe.down_bias)
        for expert in range(experts):  # one by one, so that no second copy of all experts exists
            one = slice(expert, expert + 1)
            yield Fill(
                self.gate_up,
                (experts, hidden_size, 2 * total),
                (one, every, both),
                moe.gate_up[one].mT,
            )
            yield Fill(
                self.down, (experts, total, hidden_size), (one, mine, every), moe.down[one].mT
            )
