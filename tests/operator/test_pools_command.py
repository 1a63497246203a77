"""`pando pools` with a real API server."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pando.main import main
from pando_operator.kube.resources import WORKER_POOLS
from pando_operator.resource.tuned_on import ANNOTATION, TunedOn
from tests.operator.api_server import ApiServer
from tests.operator.pool_crd import install
from tests.waiting import PATIENCE_S, until

Show = Callable[..., str]


@pytest.fixture(scope="module")
def server(api_server: ApiServer) -> ApiServer:
    install(api_server)
    return api_server


@pytest.fixture
def show(
    server: ApiServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs the command for this test's namespace and returns its output."""
    kubeconfig = str(server.kubeconfig())

    def run(*arguments: str, where: tuple[str, ...] = ("--namespace", namespace)) -> str:
        main(["pools", "--kubeconfig", kubeconfig, *where, *arguments])
        return capsys.readouterr().out

    return run


def put(server: ApiServer, namespace: str, name: str, spec: Any, status: Any) -> None:
    body = {
        "apiVersion": "pando.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": "org/llama", **spec},
    }
    stored = server.call("POST", WORKER_POOLS.path(namespace), body)
    path = WORKER_POOLS.path(namespace, name, "status")
    server.call("PUT", path, stored | {"status": status})


def moment(seconds_ago: float) -> str:
    then = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def busy(server: ApiServer, namespace: str) -> None:
    put(
        server,
        namespace,
        "llama",
        {"servedModelName": "chat", "scaling": {"maxReplicas": 8}},
        {
            "replicas": 4,
            "readyReplicas": 3,
            "startingReplicas": 1,
            "desired": 5,
            "pressure": 0.914,
            "reason": "pressure 0.91 [of] 0.70 wants 5",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Ok",
                    "lastTransitionTime": moment(9),
                },
                {
                    "type": "Degraded",
                    "status": "True",
                    "reason": "RedisAway",
                    "message": "Redis does not answer",
                    "lastTransitionTime": moment(9),
                },
            ],
            "decisions": [
                {
                    "time": moment(125 + 1000 * age),
                    "fromReplicas": 3 - age,
                    "toReplicas": 4 - age,
                    "reason": f"reason {age}",
                    "limitedBy": "ratePolicies",
                }
                for age in range(3)
            ],
        },
    )


def test_a_tuned_pool_names_its_trace_and_that_ones_traffic(
    server: ApiServer, namespace: str, show: Show
) -> None:
    put(server, namespace, "llama", {}, {})
    tuned = TunedOn(
        trace="week.jsonl",
        date=date(2026, 11, 26),
        requests_per_hour=1200.4,
        prompt_tokens=900,
        output_tokens=120,
        hit_rate=0.611,
    )
    body = {"metadata": {"annotations": {ANNOTATION: tuned.written()}}}
    path = WORKER_POOLS.path(namespace, "llama")
    server.call("PATCH", path, body, content_type="application/merge-patch+json")
    line = "tuned on week.jsonl, 2026-11-26: 1,200 requests an hour, 900 + 120 tokens, 61% cached"
    assert line in show()


def test_a_pool_is_seen_with_its_pressure_and_its_last_decisions(
    server: ApiServer, namespace: str, show: Show
) -> None:
    busy(server, namespace)
    text = show("--decisions", "2")
    row = next(line for line in text.splitlines() if line.startswith("llama"))
    assert row.split()[1:6] == ["chat", "Auto", "3/4", "1", "0"]
    assert "0.91 of 0.70" in row
    assert "pressure 0.91 [of] 0.70 wants 5" in text
    assert "Degraded RedisAway: Redis does not answer" in text
    assert "2m ago  3 -> 4: reason 0 (limited by ratePolicies)" in text
    assert "reason 1" in text
    assert "reason 2" not in text
    assert "Ok" not in text


def test_adapters_that_a_replica_lacks_are_shown(
    server: ApiServer, namespace: str, show: Show
) -> None:
    adapters = [
        {
            "name": "pirate",
            "source": "x",
            "ready": 3,
            "replicas": 4,
            "state": "Ready 3/4: w2: full",
        },
        {"name": "json", "source": "x", "ready": 4, "replicas": 4, "state": "Ready 4/4"},
        {"name": "old", "source": "x", "removing": True, "state": "Removing, still on 1/4"},
    ]
    put(server, namespace, "llama", {}, {"adapters": adapters})
    said = show()
    assert "adapter pirate Ready 3/4: w2: full" in said
    assert "adapter old Removing, still on 1/4" in said
    assert "json" not in said


def test_a_pool_that_nobody_looked_at_yet_is_shown(
    server: ApiServer, namespace: str, show: Show
) -> None:
    put(server, namespace, "new", {}, {})
    row = next(line for line in show().splitlines() if line.startswith("new"))
    assert row.split()[1:8] == ["org/llama", "Manual", "0/0", "0", "0", "-", "-"]


def test_all_namespaces_are_shown_with_their_names(
    server: ApiServer, namespace: str, show: Show
) -> None:
    put(server, namespace, "new", {}, {})
    assert f"{namespace}/new" in show(where=("--all-namespaces",))


def test_json_has_the_whole_objects(server: ApiServer, namespace: str, show: Show) -> None:
    busy(server, namespace)
    put(server, namespace, "aside", {}, {})
    both = json.loads(show("-o", "json"))["items"]
    (one,) = json.loads(show("-o", "json", "llama"))["items"]
    assert [pool["metadata"]["name"] for pool in both] == ["aside", "llama"]
    assert one["status"]["desired"] == 5
    assert one["spec"]["scaling"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_no_pools_are_said_to_be_none(show: Show) -> None:
    assert show() == "No WorkerPools.\n"


def test_a_watch_shows_what_changes_until_it_is_interrupted(
    server: ApiServer, namespace: str
) -> None:
    put(server, namespace, "first", {}, {})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pando", "pools", "--watch", "--namespace", namespace]
    shown = bytearray()

    def shows(name: bytes) -> bool:
        if select.select([ours], [], [], 0)[0]:
            shown.extend(os.read(ours, 65_536))
        return name in shown

    environment = os.environ | {"COLUMNS": "160", "TERM": "xterm"}
    with subprocess.Popen(
        [*command, "--kubeconfig", str(server.kubeconfig())],
        stdout=theirs,
        env=environment,
        # Tests in the background may ignore SIGINT, and their children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            until(lambda: shows(b"first"), "the pool is shown")
            put(server, namespace, "second", {}, {})
            until(lambda: shows(b"second"), "the new pool is shown")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        finally:
            process.kill()
            os.close(theirs)
            os.close(ours)
    assert b"Traceback" not in shown


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["pools", *arguments])
    assert ended.value.code
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_errors_are_one_line(
    server: ApiServer, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = ("--kubeconfig", str(server.kubeconfig()))
    assert "nope" in error_of(capsys, *admin, "--namespace", namespace, "nope")
    nobody = ("--kubeconfig", str(server.kubeconfig("nobody")))
    assert "cannot list" in error_of(capsys, *nobody, "-A")
    away = ("--kubeconfig", str(server.kubeconfig(server="https://127.0.0.1:1")))
    assert "workerpools" in error_of(capsys, *away)
    bad = tmp_path / "config"
    bad.write_text("{}")
    assert "no cluster is configured" in error_of(capsys, "--kubeconfig", str(bad))
    assert "--watch" in error_of(capsys, *admin, "--watch", "-o", "json")
    assert "exclude" in error_of(capsys, *admin, "-A", "-n", "x")
