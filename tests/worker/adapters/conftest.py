import pytest

from tests.worker.model.checkpoints import Reference
from tests.worker.model.conftest import References, reference_of
from tests.worker.model.families import FAMILIES

__all__ = ["family", "reference_of"]

WITH_EXPERTS = ("mixtral", "qwen3-moe", "qwen3-moe, some layers", "gpt-oss")


LATENT = tuple(name for name in FAMILIES if name.startswith("deepseek"))  # they take no adapters
PLAIN = [name for name in FAMILIES if name not in (*WITH_EXPERTS, *LATENT)]


@pytest.fixture(scope="session", params=PLAIN)
def family(request: pytest.FixtureRequest, reference_of: References) -> Reference:
    return reference_of(request.param)
