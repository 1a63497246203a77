"""One API server for the session, and a namespace for each test."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest

from pando_operator.kube.client import Kube
from pando_operator.kube.configuration import load_configuration
from tests.operator.api_server import ApiServer, assets
from tests.operator.front import Front, running_front
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    programs = assets()
    if programs is None:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    with closing(ApiServer(programs, "nobody", "operator")) as server:
        server.wait()
        yield server


@pytest.fixture
async def kube(api_server: ApiServer) -> AsyncIterator[Kube]:
    """As admin."""
    one = Kube(await load_configuration(str(api_server.kubeconfig())), timeout_s=PATIENCE_S)
    yield one
    await one.close()


@pytest.fixture
def namespace(api_server: ApiServer) -> str:
    """A new namespace. It ends with the server, as no controller here could empty it."""
    name = f"t-{secrets.token_hex(4)}"
    api_server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
async def front(api_server: ApiServer) -> AsyncIterator[Front]:
    async with running_front(api_server) as one:
        yield one


@pytest.fixture
async def fronted(api_server: ApiServer, front: Front) -> AsyncIterator[Kube]:
    """The admin's client, through the front."""
    path = str(api_server.kubeconfig(server=front.url))
    one = Kube(await load_configuration(path), timeout_s=2.0)
    yield one
    await one.close()
