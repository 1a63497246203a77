"""What an operator reads in the log about the load."""

import logging

import pytest

from pando_worker.scheduler.step_log import StepLog
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


def test_the_log_says_every_so_many_steps_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    world = World(pages=100, page_size=4)
    world.send("before", range(40), max_new_tokens=1)
    world.run()
    step_log = StepLog(10)
    step_log.update(world.scheduler.stats(), now=0.0)
    for rid in "abc":
        world.send(rid, [*range(40), 1], max_new_tokens=40)
    with caplog.at_level(logging.INFO, "pando.worker.scheduler"):
        while not caplog.messages:
            world.step()
            step_log.update(world.scheduler.stats(), now=2.0)
    stats = world.scheduler.stats()
    [line] = caplog.messages
    assert line.startswith("3 running, 0 waiting, KV pool ")
    assert "98 % of 123 prompt tokens from the cache" in line
    assert f"{(stats.output_tokens_total - 1) / 2:.0f} output tokens/s" in line
    world.run()
