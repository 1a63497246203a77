"""One socket on every address of the machine."""

import socket

import pytest

from pando_fleet.http.listener import bound_everywhere


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_both_families_reach_it(host: str) -> None:
    with bound_everywhere(0) as listener:
        listener.listen()
        socket.create_connection((host, listener.getsockname()[1]), 5).close()


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bound_everywhere(0) as listener:
        assert listener.family is socket.AF_INET
        assert listener.getsockname()[0] == "0.0.0.0"


def test_a_port_is_shared_only_if_all_that_bind_it_say_so() -> None:
    with bound_everywhere(0, share_port=True) as first:
        port = first.getsockname()[1]
        bound_everywhere(port, share_port=True).close()
        first.listen()
        with pytest.raises(OSError, match="in use"):
            bound_everywhere(port)
