"""The log lines about the load."""

import logging

import pytest

from pando_worker.engine.step_log import StepLog
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    """Room for three requests in 100 pages. Cached are the 40 tokens that all of them begin with,
    and 60 tokens that nobody requests."""
    caplog.set_level(logging.INFO, "pando.worker.scheduler")
    world = World(pages=100, page_size=4, max_running=3)
    for rid, tokens in (("begun", range(40)), ("unwanted", range(100, 160))):
        world.send(rid, tokens, max_new_tokens=1)
    world.run()
    return world


def send_four(world: World) -> None:
    for rid in "abcd":
        world.send(rid, [*range(40), 1], max_new_tokens=26)


def test_the_log_says_every_so_many_steps_what_was_done(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.scheduler.stats().steps_total
    step_log = StepLog(9, world.scheduler.stats(), now=10.0)
    send_four(world)
    steps = []
    for now in (13.0, 14.5):
        lines = len(caplog.messages)
        while len(caplog.messages) == lines:
            world.step()
            step_log.update(world.scheduler.stats(), now)
        steps.append(world.scheduler.stats().steps_total - first)
    assert steps == [9, 18]
    # Three requests share 10 pages. In total each needs 13 pages for its 41 tokens and the first 9
    # it produced, and 15 pages with the first 18.
    assert caplog.messages == [
        "3 running, 1 waiting, KV pool 19 % pinned and 15 % cached,"
        " 98 % of 123 prompt tokens from the cache, 9 output tokens/s",
        "3 running, 1 waiting, KV pool 25 % pinned and 15 % cached,"
        " 0 % of 0 prompt tokens from the cache, 18 output tokens/s",
    ]
    world.run()


def test_no_steps_between_two_lines_means_no_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    step_log = StepLog(0, world.scheduler.stats(), now=0.0)
    send_four(world)
    while not world.scheduler.is_idle:
        world.step()
        step_log.update(world.scheduler.stats(), now=1.0)
    assert caplog.messages == []
