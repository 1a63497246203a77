"""The examples of WorkerPools with adapters are ones that the operator takes."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pando_operator.resource.parse import parse

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("page", ["adapters.md", "operator.md"])
def test_the_pages_example_is_a_valid_pool(page: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    pools: list[dict[str, Any]] = [yaml.safe_load(text) for text in blocks if "adapters:" in text]
    assert pools
    for pool in pools:
        parsed = parse({"metadata": {"name": "qwen"}} | pool)
        assert [one.name for one in parsed.spec.adapters] == ["support", "legal"]
