"""`python -m bench.fleet.serve` as a command: JSON, table, exit code."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from bench.fleet.serve import Result
from tests.bench.timed_server import Plan, timed_server

ROOT = Path(__file__).parents[2]


async def run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.fleet.serve",
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_a_run_ends_with_a_table_and_its_json(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    load = ["--workload", "multi-turn", "--turns", "3", "--sessions", "5", "--rate", "50"]
    arguments = [*load, "--slo-ttft-ms", "60000"]
    async with timed_server(Plan(cached_tokens=1)) as server:
        code, output = await run("--url", server.url, *arguments, "--output", str(path), "--each")
    result = msgspec.json.decode(path.read_bytes(), type=Result)
    assert code == 0, output
    assert "TTFT" in output and "15 of 15 succeeded" in output
    assert (result.model, result.report.requests, result.report.good_share) == ("timed", 15, 1.0)
    assert result.requests is not None and len(result.requests) == 15
    # Two to calibrate, and four sessions of three to warm up, which are not measured.
    assert len(server.bodies) == 2 + 12 + 15


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--url", "http://127.0.0.1:9", "--users", "1"], "cannot be measured: /v1/models"),
        (["--workload", "trace", "--rate", "1"], "require --trace FILE"),
        ([], "set one of --rate, --arrivals trace, or --users"),
    ],
)
async def test_a_wrong_command_line_says_what_is_wrong(arguments: list[str], answer: str) -> None:
    code, output = await run(*arguments)
    assert code != 0
    assert answer in " ".join(output.split())
