"""The values that docs/install.md shows are values of the chart."""

import re

import pytest
import yaml

from pando_operator.settings import OperatorSettings
from pando_router.configuration.settings import RouterSettings
from tests.helm.chart import OLDEST, ROOT, render
from tests.helm.kubernetes_schemas import errors

PAGE = (ROOT / "docs/install.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", SHOWN)
def test_values_of_the_page_render(text: str) -> None:
    manifests = render(yaml.safe_load(text), OLDEST)
    assert not [error for manifest in manifests for error in errors(manifest, OLDEST)]


def test_single_values_named_in_the_page_exist() -> None:
    table = (ROOT / "helm/pando/README.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE))
    parents = {name.rsplit(".", depth)[0] for name in known for depth in (1, 2, 3)}
    roots = {name.split(".")[0] for name in known}
    named = {
        name
        for name in re.findall(r"(?:`|--set )(\w+(?:\.\w+)+)", PAGE)
        if name.split(".")[0] in roots
    }
    assert len(named) > 5
    # Below `settings` the chart accepts the part's own settings.
    for part, settings in (("router", RouterSettings), ("operator", OperatorSettings)):
        known |= {f"{part}.settings.{field}" for field in settings.model_fields}
    assert named <= known | parents
