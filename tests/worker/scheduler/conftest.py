"""Tests of the scheduler run with overlap and without; clients must see no difference."""

import pytest

from tests.worker.scheduler.world import World


@pytest.fixture(params=[True, False], ids=["overlap", "no overlap"])
def overlap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    on: bool = request.param
    monkeypatch.setattr(World, "OVERLAP", on)
    return on
