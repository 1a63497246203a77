"""`pando record` finds routers by a real API server, and reaches them through its proxy of pods."""

import ipaddress
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from pando.record.cluster import start_seconds
from pando.record.routers import RouterError
from tests.cli.record.test_record import TEXT, pando
from tests.operator.api_server import ApiServer
from tests.operator.pool_crd import install
from tests.operator.test_pools_command import put as put_pool
from tests.router.world import Replica, RouterClient, cached, completion, serving, until


def address() -> str:
    """Of this machine; the API server refuses to proxy to 127.0.0.1."""
    for found in psutil.net_if_addrs().values():
        for one in found:
            if one.family is socket.AF_INET and not ipaddress.ip_address(one.address).is_loopback:
                return str(one.address)
    pytest.skip("this machine has no address but 127.0.0.1")


def put_pod(
    server: ApiServer, namespace: str, name: str, port: int, *, release: str, ready: bool = True
) -> None:
    """A router's pod as the chart makes it; no kubelet runs it."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    labels = {
        "app.kubernetes.io/name": "pando",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": "router",
    }
    container = {"name": "router", "image": "pando-router", "ports": [{"containerPort": port}]}
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}
    pod: dict[str, Any] = server.call("POST", pods, body)
    pod["status"] = {
        "phase": "Running",
        "podIP": address(),
        "podIPs": [{"ip": address()}],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    server.call("PUT", f"{pods}/{name}/status", pod)


@pytest.fixture
def account(api_server: ApiServer, namespace: str) -> None:
    """Without a controller for accounts, pods get one here."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api_server.call("POST", accounts, {"metadata": {"name": "default"}})


@pytest.mark.usefixtures("account")
async def test_the_routers_of_a_release_are_switched_and_fetched_through_the_api_server(
    api_server: ApiServer, namespace: str, valkey_url: str, tmp_path: Path
) -> None:
    kubeconfig = str(api_server.kubeconfig())
    cluster = ("--kubeconfig", kubeconfig, "--namespace", namespace)
    code, _, error = await pando(*cluster, cwd=tmp_path)
    assert (code, error) == (1, f"pando: record: no router runs in namespace {namespace}\n")
    paths = [tmp_path / f"{name}-router.jsonl" for name in ("one", "other")]
    settings: dict[str, Any] = {"record_on": False, "address": "0.0.0.0"}
    first, second = (serving(valkey_url, record=path, **settings) for path in paths)
    async with Replica(valkey_url, "r") as replica, first as one, second as other:
        replica.answer = cached(60, 300)
        for number, router in enumerate((one, other)):
            await router.ready("r")
            put_pod(api_server, namespace, f"router-{number}", router.port, release="pando")
        put_pod(api_server, namespace, "router-2", 1, release="pando", ready=False)
        code, out, error = await pando(*cluster, "--on", cwd=tmp_path)
        assert (code, error) == (0, "pod router-2 is not ready, and is not asked\n")
        assert out.count("recording is on, as it was switched for all routers") == 2
        await until(lambda: is_on(other), "the other router recording, too")
        for router in (one, other, one):
            await router.post("/v1/completions", completion(TEXT))

        async def written() -> bool:
            recorded = "pando_router_recorded_requests_total"
            return await one.metric(recorded) + await other.metric(recorded) == 3

        await until(written, "all requests being written")
        code, out, _ = await pando(*cluster, cwd=tmp_path)
        assert code == 0 and "requests: 3 (3 finished)\n" in out and "routers: 2; " in out
        code, _, error = await pando(*cluster, "--cost-model", "c.json", cwd=tmp_path)
        assert code == 1 and "the workers of pool default measured decodes in 0 lines" in error
        put_pod(api_server, namespace, "router-3", 1, release="another")
        code, _, error = await pando(*cluster, cwd=tmp_path)
        assert code == 1 and "--release another or --release pando" in error
        code, out, _ = await pando(*cluster, "--release", "pando", "--status", cwd=tmp_path)
        assert code == 0 and out.startswith("pod router-0: recording is on")
    nobody = ("--kubeconfig", str(api_server.kubeconfig("nobody")), "--namespace", namespace)
    code, _, error = await pando(*nobody, cwd=tmp_path)
    assert code == 1 and "cannot list resource" in error and error.count("\n") == 1


async def test_how_long_replicas_take_to_start_is_what_the_operator_learned(
    api_server: ApiServer, namespace: str
) -> None:
    install(api_server)
    for name, starts in (("chat", [31.0, 90.0, 42.0]), ("new", [])):
        put_pool(api_server, namespace, name, {}, {"startSeconds": starts})
    kubeconfig = str(api_server.kubeconfig())
    assert await start_seconds("chat", namespace, kubeconfig) == 42.0
    assert await start_seconds("new", namespace, kubeconfig) is None
    with pytest.raises(RouterError, match="not found"):
        await start_seconds("other", namespace, kubeconfig)


async def is_on(router: RouterClient) -> bool:
    return bool((await router.get("/recording")).json["on"])
