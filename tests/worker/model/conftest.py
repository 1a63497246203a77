"""The references of the families, each created once."""

from collections.abc import Callable

import pytest

from tests.worker.model.checkpoints import Reference
from tests.worker.model.families import FAMILIES

References = Callable[[str], Reference]


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> References:
    """The reference of a family, created once."""
    made: dict[str, Reference] = {}

    def reference_of(name: str) -> Reference:
        if name not in made:
            case = FAMILIES[name]
            made[name] = Reference(
                tmp_path_factory.mktemp("family"),
                config_type=case.config_type,
                context_length=case.context_length,
                at_least=case.at_least,
                **case.fields,
            )
        return made[name]

    return reference_of


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, reference_of: References) -> Reference:
    return reference_of(request.param)
