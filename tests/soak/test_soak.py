"""A short soak; the long one is the command in `router`."""

import pytest

from tests.soak.router import soak

pytestmark = [pytest.mark.e2e, pytest.mark.long]


async def test_under_faults_every_request_ends_clearly_and_nothing_is_left() -> None:
    report = await soak(0.4, seed=7, clients=12, light=3, real=0, fault_every_s=1.5)
    print(report)
    assert not report.problems
    assert len(report.faults) >= 5
