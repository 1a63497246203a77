"""Images in the scheduler: what is encoded in a step, kept, dropped and refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.messages import Generate, PromptImage, SamplingParams
from pando_worker.pools import Pools
from pando_worker.scheduler import scheduler as scheduling
from pando_worker.server.images import sent
from tests.worker.scheduler.world import World


def image(number: int, start: int, length: int) -> PromptImage:
    pixels = np.full((3, 2, 2), number, np.float32)
    return PromptImage(
        digest=number.to_bytes(16, "little"),
        start=start,
        length=length,
        arrays={"pixel_values": sent(pixels)},
    )


def seeing(page_size: int = 16, kept: int = 100, pools: Any = None, **changes: Any) -> World:
    sizes = {"capacity_tokens": 4096, "context_length": 1000, "image_tokens": kept, **(pools or {})}
    return World(page_size=page_size, pools=Pools(**sizes), **changes)


def send(world: World, rid: str, tokens: int, *images: PromptImage) -> None:
    world.tokens[rid] = []
    command = Generate(
        rid=rid,
        input_ids=[7] * tokens,
        images=images,
        sampling=SamplingParams(max_new_tokens=2, temperature=0),
    )
    world.collect(world.scheduler.receive(command))


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, list[PromptImage]]:
    """A prompt's length and its images, some of them the same."""
    images, end = [], draw(st.integers(0, 20))
    for _ in range(draw(st.integers(0, 5))):
        length = draw(st.integers(1, 40))
        images.append(image(draw(st.integers(0, 9)) * 100 + length, end, length))
        end += length + draw(st.integers(0, 9))
    return end + draw(st.integers(1, 20)), images


@settings(max_examples=25, deadline=None)
@given(
    st.lists(prompts(), min_size=1, max_size=4),
    st.sampled_from([1, 4, 16]),
    st.integers(1, 60),
    st.integers(1, 100),
)
def test_every_request_ends_and_every_embedding_is_there_when_it_is_used(
    asked: list[tuple[int, list[PromptImage]]], page_size: int, per_step: int, kept: int
) -> None:
    """Whatever the budgets: several images may lie in one page, or one in many."""
    world = seeing(
        page_size, kept, image_tokens_per_step=per_step, chunked_prefill_size=2 * page_size
    )
    lengths: dict[bytes, int] = {}
    for number, (tokens, images) in enumerate(asked):
        send(world, f"r{number}", tokens, *images)
        lengths |= {one.digest: one.length for one in images}
    world.run()
    assert all(len(world.tokens[f"r{number}"]) == 2 for number in range(len(asked)))
    there: set[bytes] = set()
    for batch in world.batches:
        if (found := batch.images) is None:
            continue
        there -= set(found.drop)
        there |= {one.digest for one in found.encode}
        used = {part.digest for part in found.rows}
        assert used <= there
        assert len(found.tokens) == sum(part.end - part.first for part in found.rows)
        assert sum(lengths[one] for one in there) <= max(kept, sum(lengths[one] for one in used))
        np.testing.assert_array_equal(batch.input_ids[found.tokens], 7)


LONGEST, WINDOW = 40, 9


@settings(deadline=None)
@given(
    st.lists(prompts(), min_size=1, max_size=4),
    st.sampled_from([1, 4, 16]),
    st.integers(1, 60),
    st.integers(1, 100),
    st.booleans(),
    st.booleans(),
)
def test_images_whose_tokens_see_each_other_are_never_cut(
    asked: list[tuple[int, list[PromptImage]]],
    page_size: int,
    per_step: int,
    kept: int,
    windows: bool,
    again: bool,
) -> None:
    """Though they are longer than a step, and whatever of them is cached: also in a pool for layers
    with a window that is hardly large enough."""
    sizes: dict[str, int] = {"whole_image_tokens": LONGEST}
    if windows:
        step = max(2 * page_size, LONGEST)
        sizes |= {"window": WINDOW, "window_pages": -(-(WINDOW + step) // page_size) + 2}
    world = seeing(
        page_size,
        kept,
        pools=sizes,
        image_tokens_per_step=per_step,
        chunked_prefill_size=2 * page_size,
    )
    for number, (tokens, images) in enumerate(asked):
        send(world, f"r{number}", tokens, *images)
    world.run()
    if again:  # from what is cached, which may end within an image
        for number, (_, images) in enumerate(asked):
            end = max((one.start + one.length for one in images), default=1)
            send(world, f"again {number}", end, *images)
        world.run()
        assert all(len(world.tokens[f"again {number}"]) == 2 for number in range(len(asked)))
    assert all(len(world.tokens[f"r{number}"]) == 2 for number in range(len(asked)))
    lengths = {one.digest: one.length for _, images in asked for one in images}
    for batch in world.batches:
        if (found := batch.images) is None:
            continue
        assert found.seen is not None
        behind = np.cumsum(batch.extend_lens) - batch.seq_lens
        causal = np.arange(len(batch.input_ids)) - np.repeat(behind, batch.extend_lens) + 1
        first = 0
        for part in found.rows:
            assert (part.first, part.end) == (0, lengths[part.digest])
            own = found.tokens[first : first + part.end]
            first += part.end
            np.testing.assert_array_equal(found.seen[own], causal[own].max())
        rest = np.setdiff1d(np.arange(len(causal)), found.tokens)
        np.testing.assert_array_equal(found.seen[rest], causal[rest])


def test_marks_between_an_images_tokens_are_text() -> None:
    """Every third token of it, which has no embedding."""
    world = seeing(page_size=4, chunked_prefill_size=4)
    one, other = image(1, 3, 11), image(2, 3, 11)
    ids = [7] * 3 + [8, 8, 9, 8, 8, 9, 8, 8, 9, 8, 8] + [7] * 6
    embedded = [at for at, token in enumerate(ids) if token == 8]
    for rid, images in {"one": (one,), "again": (one,), "other": (other,)}.items():
        world.tokens[rid] = []
        sampling = SamplingParams(max_new_tokens=2, temperature=0)
        world.collect(
            world.scheduler.receive(
                Generate(rid=rid, input_ids=ids, images=images, sampling=sampling)
            )
        )
        before = len(world.batches)
        world.run()
        found = [batch.images for batch in world.batches[before:] if batch.images]
        parts = [(part.first, part.end) for each in found for part in each.rows]
        if rid == "again":
            assert world.cached[rid] == 16
            assert not parts
            continue
        assert parts == [(0, 1), (1, 4), (4, 6), (6, 8)]
        assert [one.tokens for each in found for one in each.encode] == [len(embedded)]
    assert world.cached["other"] == 0


def test_images_that_share_a_page_are_encoded_in_one_step() -> None:
    """The budget is for one of them, and a prompt is cut between pages alone."""
    world = seeing(image_tokens_per_step=1)
    send(world, "r", 40, image(1, 3, 5), image(2, 9, 4), image(3, 20, 4))
    world.run()
    counts = [len(batch.images.encode) for batch in world.batches if batch.images]
    assert counts == [2, 1]


def test_more_images_than_fit_in_memory_wait_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    one = image(1, 0, 4)
    monkeypatch.setattr(scheduling, "MAX_ARRAY_BYTES", 2 * one.num_bytes)
    world = seeing()
    for rid in ("first", "second", "third"):
        send(world, rid, 10, one)
    send(world, "text", 10)
    assert list(world.rejected) == ["third"]
    assert world.rejected["third"].status == 503
    world.run()
    send(world, "later", 10, one)
    world.run()
    assert len(world.tokens["later"]) == 2
