"""The forms of a layer's experts in checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from pando_worker.adapters.layout import Section
from pando_worker.models.build import Fill
from pando_worker.models.layers.experts.mixture import ExpertSections, MixtureOfExperts
from pando_worker.models.mxfp4 import Mxfp4Matrix

ALL = slice(None)


@dataclass(frozen=True, slots=True)
class OneByOne:
    """Each matrix of each expert is a separate tensor, like any linear layer's.

    Attributes are names relative to the decoder layer; `{}` is the expert's number. And:
        module: of all experts, and
        router_module: of the router, as transformers has named them since its version 5
    """

    router: str
    gate: str
    up: str
    down: str
    module: str = "mlp.experts"
    router_module: str = "mlp.gate"

    def fills(self, moe: MixtureOfExperts) -> Iterator[Fill]:
        experts, hidden_size = moe.router.shape
        total, taken = moe.rows
        mine, every = slice(taken.start, taken.stop), slice(0, hidden_size)
        yield Fill(
            f"{self.router}.weight", tuple(moe.router.shape), (slice(0, experts), every), moe.router
        )
        for place, expert in enumerate(moe.experts):
            gate, up = moe.memory_of_gate(place), moe.memory_of_up(place)
            for name, memory in ((self.gate, gate), (self.up, up)):
                yield Fill(
                    f"{name.format(expert)}.weight", (total, hidden_size), (mine, every), memory
                )
            yield Fill(
                f"{self.down.format(expert)}.weight",
                (hidden_size, total),
                (every, mine),
                moe.memory_of_down(place),
            )

    def of_expert(self, expert: int) -> tuple[str, ...]:
        names = (self.gate, self.up, self.down)
        return tuple(f"{name.format(expert)}.weight" for name in names)

    def sections(self, moe: MixtureOfExperts) -> ExpertSections:
        hidden_size, (total, taken) = moe.router.shape[1], moe.rows
        share, every, width = (taken.start, taken.stop), (0, hidden_size), len(taken)
        gate_up, down = [], []
        for expert in range(len(moe.router)):
            names = (self.gate.format(expert), self.up.format(expert))
            gate_up.append(
                tuple(
                    Section(name, hidden_size, total, every, (share,), number * width, "expert")
                    for number, name in enumerate(names)
                )
            )
            name = self.down.format(expert)
            down.append((Section(name, total, hidden_size, share, (every,), 0, "expert"),))
        return ExpertSections(
            self.module, self.router, self.router_module, tuple(gate_up), tuple(down)
        )


@dataclass(frozen=True, slots=True)
class StackedByInput:
    """One tensor for all experts, inputs before outputs.

    Attributes are names relative to the decoder layer, and:
        interleaved: whether gate and up take turns, as in GPT-OSS; otherwise gate is in front of up

    Biases, if the layer has any, are stacked likewise; those of gate and up take turns.
    """

    router: str
    gate_up: str
    down: str
    interleaved: bool

    def fills(self, moe: MixtureOfExperts) -> Iterator[Fill]:
        experts, hidden_size = moe.router.shape
        total, taken = moe.rows
        mine, every = slice(taken.start, taken.stop), slice(0, hidden_size)
        yield Fill(
            f"{self.router}.weight", (experts, hidden_size), (slice(0, experts), every), moe.router
        )
        # One by one, so that no second copy of all experts exists.
        for place, expert in enumerate(moe.experts):
            one = slice(expert, expert + 1)
            both = moe.memory_by_input(moe.gate_up, place)
            for columns, memory in self._gate_up(both, total, taken):
                shape = (experts, hidden_size, 2 * total)
                yield Fill(self.gate_up, shape, (one, every, columns), memory)
            down = moe.memory_by_input(moe.down, place)
            yield Fill(self.down, (experts, total, hidden_size), (one, mine, every), down)
        yield from self._biases(moe)

    def of_expert(self, expert: int) -> tuple[str, ...]:
        return ()

    def sections(self, moe: MixtureOfExperts) -> ExpertSections:
        hidden_size, (total, taken) = moe.router.shape[1], moe.rows
        share, every = (taken.start, taken.stop), (0, hidden_size)
        columns = tuple(
            (part.start, part.stop)
            for part, _ in self._gate_up(moe.memory_by_input(moe.gate_up, 0), total, taken)
        )
        module = self.gate_up.rpartition(".")[0]
        experts = range(len(moe.router))
        return ExpertSections(
            module,
            self.router,
            self.router,
            tuple(
                (
                    Section(
                        f"{module}.{e}.gate_up_proj",
                        hidden_size,
                        2 * total,
                        every,
                        columns,
                        0,
                        "expert",
                    ),
                )
                for e in experts
            ),
            tuple(
                (
                    Section(
                        f"{module}.{e}.down_proj", total, hidden_size, share, (every,), 0, "expert"
                    ),
                )
                for e in experts
            ),
        )

    def _gate_up(
        self, memory: Tensor | Mxfp4Matrix, total: int, taken: range
    ) -> Iterator[tuple[slice, Tensor | Mxfp4Matrix]]:
        """This rank's columns of the checkpoint's tensor, and the columns of memory for them."""
        if self.interleaved:
            yield slice(2 * taken.start, 2 * taken.stop), memory
            return
        assert isinstance(memory, Tensor), "matrices of mxfp4 are interleaved"
        for first, half in zip((0, total), memory.chunk(2, dim=2), strict=True):
            yield slice(first + taken.start, first + taken.stop), half

    def _biases(self, moe: MixtureOfExperts) -> Iterator[Fill]:
        if moe.router_bias is None or moe.gate_up_bias is None or moe.down_bias is None:
            return
        assert self.interleaved
        experts, hidden_size = moe.router.shape
        total, taken = moe.rows
        own, every = slice(moe.experts.start, moe.experts.stop), slice(0, hidden_size)
        both = slice(2 * taken.start, 2 * taken.stop)
        yield Fill(f"{self.router}.bias", (experts,), (slice(0, experts),), moe.router_bias)
        yield Fill(f"{self.gate_up}_bias", (experts, 2 * total), (own, both), moe.gate_up_bias)
        yield Fill(f"{self.down}_bias", (experts, hidden_size), (own, every), moe.down_bias)
