"""Fixtures with real Redis servers for all tests; the unit tests share one server of each kind."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.fleet.redis_server import REDIS, VALKEY, RedisServer

# A busy machine is slow at whatever it does: that says nothing about what is tested.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
# The first failure is enough to notice a mutant, and each run tries the same examples.
settings.register_profile(
    "mutants",
    parent=settings.get_profile("any machine"),
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
)

_OPTIONS = ("--save", "", "--appendonly", "no")


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """Valkey 9.1, shared by the whole session; `valkey_url` gives it emptied."""
    with closing(RedisServer(VALKEY, *_OPTIONS)) as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Redis 6.2, shared by the whole session."""
    with closing(RedisServer(REDIS, *_OPTIONS)) as server:
        server.start()
        yield server


@pytest.fixture
def valkey_url(valkey_server: RedisServer) -> str:
    """URL of an empty Valkey."""
    return _emptied(valkey_server)


@pytest.fixture(params=["valkey_server", "redis_server"])
def redis_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty server: the test runs once on Valkey 9.1 and once on Redis 6.2."""
    return _emptied(request.getfixturevalue(request.param))


@pytest.fixture
def start_valkey() -> Iterator[Callable[..., RedisServer]]:
    """Starts Valkey servers that the test may stop; takes RedisServer's options."""
    with _starting(VALKEY) as start:
        yield start


@pytest.fixture(params=[VALKEY, REDIS], ids=["valkey", "redis"])
def start_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., RedisServer]]:
    """As `start_valkey`: the test runs once on Valkey 9.1 and once on Redis 6.2."""
    with _starting(request.param) as start:
        yield start


@contextmanager
def _starting(binary: Path) -> Iterator[Callable[..., RedisServer]]:
    with ExitStack() as servers:

        def start(
            *options: str, port: int = 0, config: str = "", password: str = ""
        ) -> RedisServer:
            server = RedisServer(
                binary, *_OPTIONS, *options, port=port, config=config, password=password
            )
            servers.enter_context(closing(server))
            server.start()
            return server

        yield start


def _emptied(server: RedisServer) -> str:
    with server.admin() as client:
        client.flushall()
    return server.url
