"""Images' arrays on their way to the scheduler: whole, and copied by no step of the event loop."""

import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pando_worker.messages import Abort, Command, Generate, PromptImage, SamplingParams
from pando_worker.reading.array_file import ArrayFile, store
from pando_worker.scheduler.images import read_images
from pando_worker.server.images import prompt_image
from pando_worker.vision.processed import Processed
from pando_worker.wire import CommandReceiver, CommandSender
from tests.waiting import until

MIB = 2**20


@pytest.fixture
def wire() -> Iterator[tuple[CommandSender, CommandReceiver]]:
    """Between two sockets of this process."""
    context = zmq.Context()
    receiving, sending = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    receiving.bind("inproc://commands")
    sending.connect("inproc://commands")
    yield CommandSender(sending), CommandReceiver(receiving)
    context.destroy(linger=0)


ARRAYS = st.one_of(
    *(
        arrays(kind, array_shapes(max_dims=3, max_side=40))
        for kind in (np.float32, np.int64, np.bool_)
    )
)
IMAGES = st.lists(
    st.dictionaries(st.sampled_from(["pixel_values", "image_sizes", "mask"]), ARRAYS),
    min_size=1,
    max_size=4,
)


def image(contents: dict[str, np.ndarray]) -> Processed:
    return Processed(b"d" * 16, [7, 7], 0, 2, contents)


def asking(*images: PromptImage) -> Generate:
    return Generate(
        rid="r", input_ids=[7] * 8, sampling=SamplingParams(max_new_tokens=1), images=images
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=IMAGES)
def test_arrays_arrive_as_they_were(
    wire: tuple[CommandSender, CommandReceiver],
    contents: list[dict[str, np.ndarray]],
) -> None:
    """Through the file and the socket, small ones and large ones, between other commands."""
    file = ArrayFile()
    found = file.loaded(store(file.path, [image(each) for each in contents]))
    file.close()
    assert not file.path.exists()
    sender, receiver = wire
    commands: list[Command] = [
        Abort(rid="before"),
        asking(*(prompt_image(one, 2 * at) for at, one in enumerate(found))),
        Abort(rid="behind"),
    ]
    for command in commands:
        sender.send(command)
    assert receiver.receive() == commands[0]
    arrived = receiver.receive()
    assert receiver.receive() == commands[2]
    assert isinstance(arrived, Generate)
    spans = read_images(arrived.images, np.full(8, 7, np.int32), are_whole=False)
    for span, expected in zip(spans, contents, strict=True):
        assert span.arrays.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(span.arrays[name], array)
            assert span.arrays[name].dtype == array.dtype


def test_hundreds_of_mebibytes_cost_the_loop_neither_time_nor_memory(
    wire: tuple[CommandSender, CommandReceiver],
) -> None:
    """What the event loop does with the frames of a long video for four choices, in CPU time of its
    thread: a copy of one of them would take several times as long."""
    sender, receiver = wire
    file = ArrayFile()
    frame = image({"pixel_values": np.full((256, MIB // 8), 0.5, np.float32)})  # 128 MiB
    stored = store(file.path, [frame, replace(frame, digest=b"e" * 16)])
    expected = frame.arrays["pixel_values"][3]
    del frame
    tracemalloc.start()
    began = time.thread_time()
    command = asking(*(prompt_image(one, 0) for one in file.loaded(stored)))
    for _ in range(4):
        sender.send(command)
    took = time.thread_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 0.02, f"{took * 1e3:.1f} ms"
    assert peak < MIB
    for _ in range(4):
        arrived = receiver.receive()
        assert isinstance(arrived, Generate)
        (first, second) = read_images(arrived.images, np.full(8, 7, np.int32), are_whole=False)
        for span in (first, second):
            np.testing.assert_array_equal(span.arrays["pixel_values"][3], expected)


def test_nobody_waits_until_memory_is_unmapped() -> None:
    """Whoever drops the last array: that would hold Python's lock for a tenth of a second."""
    file = ArrayFile()
    stored = store(file.path, [image({"pixel_values": np.ones((256, MIB // 4), np.float32)})])
    (one,) = file.loaded(stored)
    file.close()
    assert mapped() == [256 * MIB]
    assert one.arrays["pixel_values"].sum() == 256 * MIB // 4  # which reads every page
    began = time.thread_time()
    del one
    assert time.thread_time() - began < 0.005
    until(lambda: not mapped(), "it is unmapped")


def mapped() -> list[int]:
    """Sizes of images' files that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if "pando-arrays" in line]
    return [int(end, 16) - int(start, 16) for start, end in ranges]
