"""Shared by all tests: real Redis and Valkey servers, and the grouping for `-n 4`."""

import gc
import importlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

from tests.durations import Durations, slow
from tests.examples import QUICK
from tests.fleet.redis_server import REDIS, VALKEY, RedisServer
from tests.waiting import PATIENCE_S

# Torch reads it on import, here and in each process that a test starts. The tests' models are tiny,
# so threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Triton reads it on import, too: without a GPU its kernels run in its interpreter. With one,
# `tests/gpu` runs them on it, perhaps in this process.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"

settings.load_profile(QUICK)

# Shared fixtures that are cheap, so that each pytest process may have its own.
_EACH_PROCESS = frozenset({"valkey_server", "redis_server", "crds", "reference_of", "gpu"})

# Collections of the second generation after which one of everything is due: between two tests,
# or in the midst of one that allocates very much.
_DUE, _OVERDUE = 25, 500

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OPTIONS = ("--save", "", "--appendonly", "no")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="without what took long when it last ran")


def pytest_configure(config: pytest.Config) -> None:
    runs_for_another = hasattr(config, "workerinput")  # one of xdist's processes
    if (cache := _cache(config)) and not runs_for_another and not config.option.quick:
        config.pluginmanager.register(Durations(cache))


def pytest_sessionstart(session: pytest.Session) -> None:
    gc.disable()  # until all is collected
    if logs := session.config.pluginmanager.get_plugin("logging-plugin"):
        logs.report_handler.setFormatter(WithFields())


def pytest_collection_finish() -> None:
    """What was imported stays, so the garbage collector need not look at it: neither while it is
    imported nor each time that it looks at everything."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _OVERDUE)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Ends what a group shares with its last test: an idle API server or fleet would else take a
    fiftieth of a core until all tests are done. A process of xdist never gets a group again."""
    by_groups = getattr(item.config.option, "loadgroup", False)
    group = _group(item)
    if not by_groups or nextitem is None or group in ("", _group(nextitem)):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    runtestprotocol(item, nextitem=None)  # as if it were the last of all
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_logfinish() -> None:
    """To look at everything takes half a second of CPU, because of the libraries that tests import.
    So it is done between tests: in one, a server in this process would seem to stand still."""
    if gc.get_count()[2] >= _DUE:
        gc.collect()


class WithFields(logging.Formatter):
    """Log lines of a failed test, including the fields that Pando adds to the message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return f"{record.levelname} {record.name}: {record.getMessage()} {fields or ''}"


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Restores the signals: a command that a test runs in this process leaves them blocked and
    ignored, as it is about to end. Processes of later tests would inherit that and not end on a
    signal."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    handlers = {number: signal.getsignal(number) for number in _END_SIGNALS}
    yield
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups tests that share a fleet, a reference or the like into one process, so that it is
    created once for any number of processes (`--dist loadgroup`). Those that start processes of
    Pando come first: they take longest, and one begun last would be waited for alone."""
    if config.option.quick and (cache := _cache(config)):
        left_out = slow(cache)
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid in left_out])
        items[:] = [one for one in items if one.nodeid not in left_out]
    for item in items:
        if isinstance(item, pytest.Function) and (shared := _shared(item)):
            item.add_marker(pytest.mark.xdist_group(shared))
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


def _group(item: pytest.Item) -> str:
    """What it is in one process for; empty if it may run in any."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else ""


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """pytest's cache; None without one (`-p no:cacheprovider`)."""
    return getattr(config, "cache", None)


def _shared(item: pytest.Function) -> str:
    """The widest fixture that the test shares with others: its place, name and parameter."""
    shared = [
        (definitions[-1].scope == "session", definitions[-1].baseid, name)
        for name, definitions in item._fixtureinfo.name2fixturedefs.items()
        if definitions[-1].scope in ("session", "module")
        and definitions[-1].baseid  # else a plugin's
        and name not in _EACH_PROCESS
    ]
    if not shared:
        return ""
    _, place, name = max(shared)
    callspec = getattr(item, "callspec", None)
    parameter = callspec.indices.get(name, "") if callspec else ""
    return f"{Path(place).stem}.{name}{parameter}"


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


@pytest.fixture(scope="session")
def anthropic() -> Any:
    """Anthropic's library, imported only where it is used: that takes 1.7 s of CPU."""
    return importlib.import_module("anthropic")


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
    """Starts Valkey servers that the test may stop; accepts RedisServer's options."""
    with _starting(VALKEY) as start:
        yield start


@pytest.fixture(params=[VALKEY, REDIS], ids=["valkey", "redis"])
def start_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., RedisServer]]:
    """Like `start_valkey`, but the test runs once on Valkey 9.1 and once on Redis 6.2."""
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
    """Its clients are patient: by themselves they give up after a second."""
    with server.admin() as client:
        client.flushall()
    return f"{server.url}?socket_timeout={PATIENCE_S}&socket_connect_timeout={PATIENCE_S}"
