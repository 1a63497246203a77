"""In how many ways an engine may run the same requests, which must not change their tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hypothesis import strategies as st

from tests.worker.scheduler.world import World
from tests.worker.vision.engines import PAGE_SIZE, Worlds


class Asked(Protocol):
    """A prompt, and what transformers continues it with."""

    def send(self, world: World, rid: str, count: int) -> None: ...

    def greedy(self, count: int) -> list[int]: ...


@dataclass(frozen=True)
class Way:
    together: bool  # or one request after the other
    chunk: int  # pages of a prompt in a step
    per_step: int  # tokens of images that a step encodes
    kept: int  # tokens of images whose embeddings are kept
    overlap: bool  # the next step is launched before the last one's result is there

    def assert_tokens(
        self, worlds: Worlds, asked: Mapping[str, Asked], names: Sequence[str], count: int
    ) -> None:
        """Sent in this order, each prompt gets the tokens of transformers."""
        world = worlds(
            image_tokens=self.kept,
            image_tokens_per_step=self.per_step,
            chunked_prefill_size=self.chunk * PAGE_SIZE,
            overlap_schedule=self.overlap,
        )
        for name in names:
            asked[name].send(world, name, count)
            if not self.together:
                world.run()
        world.run()
        for name in names:
            assert world.tokens[name] == asked[name].greedy(count), name


WAYS = st.builds(
    Way,
    together=st.booleans(),
    chunk=st.integers(1, 12),
    per_step=st.sampled_from([1, 16, 40, 1000]),
    kept=st.sampled_from([1, 16, 40, 1000]),
    overlap=st.booleans(),
)
