"""`pando tune` in the tests' own process."""

from tests.cli.sim.conftest import signals_as_before

__all__ = ["signals_as_before"]
