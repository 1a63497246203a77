"""A worker's name and address in the fleet."""

import socket

import pytest

from pando_worker.server.front.startup import bind
from pando_worker.settings import WorkerSettings


def test_routers_get_the_url_and_the_name_that_were_set() -> None:
    settings = WorkerSettings(model="m", port=0, url="http://10.0.0.7:80", replica="one")
    address = bind(settings)
    with address.listener:
        assert (address.url, address.replica) == ("http://10.0.0.7:80", "one")


@pytest.mark.parametrize(
    ("given", "reached"),
    [
        ("http://fd00:10:244::1a:30000", "http://[fd00:10:244::1a]:30000"),
        ("http://[fd00:10:244::1a]:30000", "http://[fd00:10:244::1a]:30000"),
        ("http://10.0.0.7:30000", "http://10.0.0.7:30000"),
        ("https://worker.example", "https://worker.example"),
    ],
)
def test_an_ipv6_address_gets_the_brackets_that_kubernetes_cannot_add(
    given: str, reached: str
) -> None:
    address = bind(WorkerSettings(model="m", port=0, url=given))
    with address.listener:
        assert address.url == reached


def test_everywhere_is_every_address_of_both_families() -> None:
    address = bind(WorkerSettings(model="m", host="::", port=0))
    with address.listener:
        port = address.listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), 5).close()


def test_otherwise_they_are_made_of_host_and_port() -> None:
    address = bind(WorkerSettings(model="m", port=0))
    with address.listener:
        port = address.listener.getsockname()[1]
        assert address.url == f"http://127.0.0.1:{port}"
        assert address.replica == f"{socket.gethostname()}-{port}"
