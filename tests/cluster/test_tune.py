"""From a running release to a trace, the cost model of its workers, and the proof."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from pando_operator.resource.tuned_on import ANNOTATION
from pando_sim.cost import load as load_cost_model
from pando_sim.traces.formats.recording import fleet_states
from tests.cluster.conftest import POOL
from tests.cluster.kube import POOLS, Cluster, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL

SHAPE = {"clients": 3, "words": 100, "max_tokens": 100}
MEASURED = 12
"""Lines about a replica at work, of which the cost model is made."""


def pando(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pando", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_a_release_is_recorded_through_the_api_server_and_its_replay_is_compared(
    cluster: Cluster, load: LoadPod, tmp_path: Path
) -> None:
    where = ("--namespace", cluster.namespace)
    switched = pando(tmp_path, "record", *where, "--on")
    assert switched.returncode == 0, switched.stderr
    assert switched.stdout.count("recording is on") == 2
    load.set(**SHAPE)

    def fetched() -> int:
        """Lines about a replica that decoded."""
        made = pando(tmp_path, "record", *where)
        if made.returncode:  # nothing is written yet
            return 0
        measured = [
            one
            for state in fleet_states(tmp_path / "trace.jsonl")
            for one in state.pools[POOL].measured
        ]
        return sum(one.decoded_tokens > 0 and one.prompts > 0 for one in measured)

    wait_until("enough is measured", lambda: fetched() >= MEASURED, 300, moving=fetched)
    load.set(0)
    made = pando(tmp_path, "record", *where, "--cost-model", "cluster.json", "--pool", POOL)
    assert made.returncode == 0, made.stderr
    assert "routers: 2; " in made.stdout and f"pools: {POOL} (" in made.stdout
    assert load_cost_model(str(tmp_path / "cluster.json")).step_s(decodes=3) > 0
    manifest = {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": POOL},
        "spec": CHAT_POOL,
    }
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump(manifest))
    options = ("--pool", "pool.yaml", "--cost-model", "cluster.json")
    proof = pando(tmp_path, "sim", "prove", "trace.jsonl", *options)
    print(made.stdout, proof.stdout, sep="\n")
    assert proof.returncode in (0, 1), proof.stderr  # a busy machine need not be predictable
    assert proof.stdout.count("predicted") >= 7 and "unknown" not in proof.stdout
    assert pando(tmp_path, "record", *where, "--off").returncode == 0


def test_a_pool_says_what_it_was_tuned_on(cluster: Cluster, tmp_path: Path) -> None:
    traffic = {"requestsPerHour": 600, "promptTokens": 400, "outputTokens": 100, "hitRate": 0.5}
    note = msgspec.json.encode({"trace": "week.jsonl", "date": "2026-11-26"} | traffic).decode()
    path = f"{POOLS}/{POOL}"
    cluster.patch(path, {"metadata": {"annotations": {ANNOTATION: note}}})

    def is_noted() -> bool:
        return bool(cluster.pool_status(POOL).get("tuning", {}).get("trace") == "week.jsonl")

    wait_until("the status names the trace", is_noted, 60)
    shown = pando(tmp_path, "pools", "--namespace", cluster.namespace).stdout
    assert (
        "tuned on week.jsonl, 2026-11-26: 600 requests an hour, 400 + 100 tokens, 50% cached"
        in shown
    )
    cluster.patch(path, {"metadata": {"annotations": {ANNOTATION: None}}})
