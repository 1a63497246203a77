"""Runs schemathesis against a server, in a process of its own."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

HANG_S = 20.0  # without an answer


async def schemathesis(
    url: str,
    document: Any,
    phases: str,
    examples: int,
    folder: Path,
    *,
    checks: str = "all",
    excluded: str = "",
    key: str = "",
) -> str | None:
    """What schemathesis reports of the server at `url`, or None if it finds nothing.

    Args:
        document: what the server says of itself in OpenAPI
        examples: of each operation at most, in each phase that makes them at random
    """
    file = folder / "openapi.json"
    file.write_text(json.dumps(document))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", str(file), "--url", url),
        *("--max-examples", str(examples), "--request-timeout", str(HANG_S)),
        *("--phases", phases, "--seed", "1", "--continue-on-failure", "--checks", checks),
        *(("--exclude-checks", excluded) if excluded else ()),
        *(("--header", f"authorization: Bearer {key}") if key else ()),
        *("--suppress-health-check", "all", "--warnings", "off", "--no-color"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await child.communicate()
    return None if child.returncode == 0 else said.decode()
