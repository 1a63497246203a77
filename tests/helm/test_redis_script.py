"""The script that starts the bundled Redis, with a real Redis and a real Valkey."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.fleet.redis_server import REDIS, VALKEY
from tests.helm.chart import one, render
from tests.ports import free_port
from tests.waiting import until

PASSWORD = "aB3" * 10


Started = tuple[int, "subprocess.Popen[bytes]", Path]


PROGRAMS = {"valkey-server": VALKEY, "redis-server": REDIS}


@contextmanager
def running(kind: str, folder: Path, **secret: str) -> Iterator[Started]:
    """Starts it like its container, with the container's paths in a folder of the test."""
    (folder / kind).symlink_to(PROGRAMS[kind])
    (folder / "redis-cli").symlink_to(REDIS.with_name("redis-cli"))
    for key, value in secret.items():
        (folder / key.replace("_", "-")).write_text(value)
    port = free_port()
    for file, text in one(render({}), "ConfigMap", "pando-redis")["data"].items():
        for there, here in {
            "/tmp/password": str(folder / "started-with"),
            "/etc/redis": str(folder),
            "/run/secrets/redis": str(folder),
            "/data": str(folder),
            "port 6379": f"port {port}",
            '"$cli"': f'"$cli" -p {port}',
        }.items():
            text = text.replace(there, here)
        (folder / file).write_text(text)
    process = subprocess.Popen(["sh", str(folder / "start.sh")], env=path(folder))
    try:
        yield port, process, folder
    finally:
        process.terminate()
        process.wait(10)


def path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def is_ready(folder: Path) -> bool:
    return subprocess.run(["sh", str(folder / "ready.sh")], env=path(folder)).returncode == 0


@pytest.fixture(params=PROGRAMS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Started]:
    with running(request.param, tmp_path, password=PASSWORD) as started:
        yield started


def test_redis_wants_the_secrets_password_and_shows_it_to_nobody(server: Started) -> None:
    port, process, folder = server
    until(lambda: is_ready(folder), "the probe says that it is ready")
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port).ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port, password="wrong").ping()
    # The shell has become the server, so process 1 of the container is the server and gets signals.
    command = Path(f"/proc/{process.pid}/cmdline").read_text()
    assert "-server" in command and PASSWORD not in command
    config = redis.Redis(port=port, password=PASSWORD).config_get()
    assert config["maxmemory"] == str(200 * 1024 * 1024)
    assert config["maxmemory-policy"] == "volatile-lru"
    assert config["lazyfree-lazy-eviction"] == "no"
    (folder / "started-with").write_text("another one")
    assert not is_ready(folder)
    assert config["save"] == "" and config["appendonly"] == "no"


@pytest.mark.parametrize("kind", PROGRAMS)
def test_the_previous_password_holds_while_pods_change_over(kind: str, tmp_path: Path) -> None:
    previous = "xY9" * 10
    with running(kind, tmp_path, password=PASSWORD, previous_password=previous) as (
        port,
        _,
        folder,
    ):
        until(lambda: is_ready(folder), "the probe says that it is ready")
        for password in (PASSWORD, previous):
            assert redis.Redis(port=port, password=password).set("key", "value")
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()


def test_without_a_password_redis_does_not_start(tmp_path: Path) -> None:
    with running("valkey-server", tmp_path) as (_, process, _):
        assert process.wait(10) != 0


def test_a_secret_that_changes_takes_no_running_redis_down(server: Started) -> None:
    _, _, folder = server
    until(lambda: is_ready(folder), "the probe says that it is ready")
    (folder / "password").write_text("another one")
    assert is_ready(folder)
    assert (folder / "started-with").stat().st_mode & 0o077 == 0
