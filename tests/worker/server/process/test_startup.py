"""A worker's name and address in the fleet."""

import socket

from pando_worker.server.front.startup import bind
from pando_worker.settings import WorkerSettings


def test_routers_get_the_url_and_the_name_that_were_set() -> None:
    settings = WorkerSettings(model="m", port=0, url="http://10.0.0.7:80", replica="one")
    address = bind(settings)
    with address.listener:
        assert (address.url, address.replica) == ("http://10.0.0.7:80", "one")


def test_otherwise_they_are_made_of_host_and_port() -> None:
    address = bind(WorkerSettings(model="m", port=0))
    with address.listener:
        port = address.listener.getsockname()[1]
        assert address.url == f"http://127.0.0.1:{port}"
        assert address.replica == f"{socket.gethostname()}-{port}"
