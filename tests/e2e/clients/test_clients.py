"""Each client runs the block of docs/clients.md that has its name, against a real fleet."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.e2e.clients.venvs import REQUIREMENTS, python_of
from tests.e2e.up_process import UpProcess

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs/clients.md"
PAGES_URL = "http://127.0.0.1:8000"
PATIENCE_S = 120
WIDTH = "576"  # of SmolLM2's embeddings

PRINTED: dict[str, Callable[[str], object]] = {
    "openai": lambda out: "city='Rome'" in out and out.splitlines()[-1] == WIDTH,
    "anthropic": lambda out: out.startswith("{'city':"),
    "litellm": lambda out: out.strip(),
    "langchain": lambda out: "'name': 'weather'" in out and "tool It rains in" in out,
    "instructor": lambda out: re.match(r"name='.*' age=\d+", out),
    "llama-index": lambda out: out.splitlines()[-1] == WIDTH,
    "pydantic-ai": lambda out: re.match(r"name='.*' age=\d+", out),
    "openai-agents": lambda out: out.startswith("It rains in "),
}


def block(client: str) -> str:
    """The Python block of the page's section about this client."""
    lines = PAGE.read_text().splitlines()
    at = lines.index(f"## {client}") + 1
    return next(one.text for one in blocks(PAGE) if one.language == "python" and one.line > at)


# The first run of the others installs them.
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in REQUIREMENTS else [])
        for name in sorted(PRINTED)
    ],
)
def test_the_pages_block_runs_as_it_stands(client: str, smollm2: UpProcess, tmp_path: Path) -> None:
    script = tmp_path / "client_block.py"
    text = block(client)
    assert PAGES_URL in text
    script.write_text(text.replace(PAGES_URL, smollm2.url))
    python = python_of(client) if client in REQUIREMENTS else sys.executable
    done = subprocess.run(
        [python, script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        # Only the client's own packages; LiteLLM fetches prices from the internet otherwise.
        env={"PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[client](done.stdout), done.stdout
