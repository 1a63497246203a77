"""Outputs of gpt-oss, read as OpenAI's own package for their format reads them."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.e2e.clients.venvs import python_of
from tests.worker.parsers.parsing import new_parser, parse

# A file of LiteLLM's has the tokens, which the package would fetch.
TOKENS = "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
SCRIPT = ROOT / "tests/worker/parsers/harmony_texts.py"


@pytest.mark.long  # the first run installs it
def test_channels_and_calls_are_those_that_openai_harmony_reads(tmp_path: Path) -> None:
    python = python_of("openai-harmony")
    [tokens] = python.parents[1].glob(f"lib/*/site-packages/{TOKENS}")
    (tmp_path / "o200k_base.tiktoken").symlink_to(tokens)
    out = subprocess.run(
        [python, SCRIPT, tmp_path], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    cases = json.loads(out)
    rng = random.Random(3)
    for case in cases:
        text, messages = case["text"], case["messages"]
        wanted = {
            "reasoning": [one["text"] for one in messages if one["channel"] == "analysis"],
            "content": [
                one["text"] for one in messages if one["channel"] != "analysis" and not one["to"]
            ],
            "calls": [(one["to"], one["text"]) for one in messages if one["to"]],
        }
        cuts = sorted(rng.choices(range(len(text)), k=rng.randint(0, 8)))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        parsed = parse(new_parser("gpt_oss", "gpt_oss"), chunks)
        assert parsed.reasoning == "".join(wanted["reasoning"]), text
        assert parsed.content == "".join(wanted["content"]), text
        calls = [(f"functions.{call.name}", call.arguments) for call in parsed.calls]
        assert calls == wanted["calls"], text
    assert {len(case["messages"]) for case in cases} == {1, 2, 3}
