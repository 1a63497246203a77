"""`pando record` against real routers."""

import asyncio
import hashlib
import os
import stat
import sys
from pathlib import Path

from pando_sim.traces import open_trace
from tests.router.world import Replica, cached, completion, serving, until

TEXT = "One root, forty thousand trunks. " * 30


async def pando(*words: str, cwd: Path, **variables: str) -> tuple[int, str, str]:
    """The command's exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pando", "record", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=os.environ | variables,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_routers_that_are_switched_on_give_one_trace(valkey_url: str, tmp_path: Path) -> None:
    paths = [tmp_path / name / "requests.jsonl" for name in ("one", "other")]
    for path in paths:
        path.parent.mkdir()
    first, second = (serving(valkey_url, record=path, record_on=False) for path in paths)
    async with Replica(valkey_url, "r") as replica, first as one, second as other:
        replica.answer = cached(60, 300)
        await one.ready("r")
        await other.ready("r")
        code, _, error = await pando(one.url, cwd=tmp_path)
        assert code == 1
        assert error == (
            f"pando: record: {one.url}: nothing was recorded; switch it on with --on\n"
        )
        code, out, _ = await pando(one.url, "--on", cwd=tmp_path)
        assert (code, out) == (
            0,
            f"{one.url}: recording is on, as it was switched for all routers; 0 files, 0.0 MiB\n",
        )

        async def is_on() -> bool:
            return bool((await other.get("/recording")).json["on"])

        await until(is_on, "the other router recording, too")
        for number in range(6):
            router = (one, other)[number % 2]
            await router.post("/v1/completions", completion(TEXT + "x" * 300 * number))
        recorded = "pando_router_recorded_requests_total"

        async def all_written() -> bool:
            return await one.metric(recorded) + await other.metric(recorded) == 6

        await until(all_written, "all requests being written")
        code, out, error = await pando(one.url, other.url, one.url + "/", cwd=tmp_path)
        assert (code, error) == (0, "")
        assert "requests: 6 (6 finished)\n" in out
        assert "tokens: 1,800 of prompts, 20.0% of them cached; " in out
        assert "models: m (6); pools: default (6)\n" in out
        assert "routers: 2; " in out
        assert "keys: of" not in out and "gaps" not in out
        assert out.endswith("The trace is trace.jsonl\n")
        code, out, _ = await pando(one.url, other.url, "--off", cwd=tmp_path)
        assert out.count("recording is off, as it was switched") == 2
    trace = tmp_path / "trace.jsonl"
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    requests = list(open_trace(trace))
    assert [len(request.prompt.keys()) for request in requests] == sorted(
        len(request.prompt.keys()) for request in requests
    )
    assert requests[0].prompt.keys() == requests[5].prompt.keys()[: len(requests[0].prompt.keys())]
    assert b"aspen" not in trace.read_bytes() and b"trunks" not in trace.read_bytes()
    assert names(tmp_path) == ["one", "other", "trace.jsonl"]


async def test_what_cannot_be_fetched_is_one_line(valkey_url: str, tmp_path: Path) -> None:
    cases = [
        (("localhost:8000",), 2, "URL is 'localhost:8000': it must be a router's"),
        (("http://127.0.0.1:1",), 1, "http://127.0.0.1:1 cannot be reached: "),
        (("--kubeconfig", "/dev/null", "http://127.0.0.1:1"), 2, "leave out one of them"),
        (("--pool", "p", "http://127.0.0.1:1"), 2, "give --cost-model, too"),
    ]
    async with Replica(valkey_url, "r") as replica, serving(valkey_url) as router:
        cases += [
            ((replica.heart.url,), 1, "is no router of this release"),
            ((router.url, "--on"), 1, "no file to record to: set `record`"),
            ((router.url, "--on", "--status"), 2, "leave out one of them"),
        ]
        for words, wanted, why in cases:
            code, out, error = await pando(*words, cwd=tmp_path)
            assert (code, out) == (wanted, ""), error
            assert why in error
            assert error.count("\n") == 1 and error.endswith("\n")
    assert names(tmp_path) == []


async def test_a_router_with_keys_wants_an_admins(valkey_url: str, tmp_path: Path) -> None:
    key = "sk-of-an-admin-of-this-test"
    tenants = tmp_path / "tenants.yaml"
    digest = hashlib.sha256(key.encode()).hexdigest()
    tenants.write_text(f"tenants:\n  ops:\n    admin: true\n    keys:\n      - sha256: {digest}\n")
    async with serving(valkey_url, api_keys=tenants) as router:
        code, _, error = await pando(router.url, cwd=tmp_path, OPENAI_API_KEY="")
        assert code == 1
        assert error.endswith("wants the API key of an admin: set OPENAI_API_KEY\n")
        code, out, _ = await pando(router.url, "--status", cwd=tmp_path, OPENAI_API_KEY=key)
        assert (code, out) == (0, f"{router.url}: recording is off; 0 files, 0.0 MiB\n")
