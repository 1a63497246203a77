"""The packages of the extra `sim`, which a worker's or a router's installation lacks."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from pando_fleet.distribution import how_to_install


@contextmanager
def packages_needed_by(what: str) -> Iterator[None]:
    """Raises ClickException, which says what to install, if one that is imported meanwhile is
    missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pando"):
            raise
        raise click.ClickException(
            f"{what} needs the Python package {error.name}, which is not installed:"
            f" {how_to_install('sim')}"
        ) from error
