"""The script that starts the bundled Redis, with real servers of both kinds."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.fleet.redis_server import REDIS, VALKEY, free_port
from tests.helm.chart import one, render
from tests.waiting import until

PASSWORD = "aB3" * 10


Started = tuple[int, "subprocess.Popen[bytes]", Path]


@pytest.fixture(
    params=[("valkey-server", VALKEY), ("redis-server", REDIS)], ids=["valkey", "redis"]
)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Started]:
    """As its container starts it, with the container's paths in a folder of the test."""
    name, program = request.param
    (tmp_path / name).symlink_to(program)
    (tmp_path / "redis-cli").symlink_to(REDIS.with_name("redis-cli"))
    (tmp_path / "password").write_text(PASSWORD)
    port = free_port()
    for file, text in one(render({}), "ConfigMap", "pando-redis")["data"].items():
        for there, here in {
            "/etc/redis": str(tmp_path),
            "/run/secrets/redis": str(tmp_path),
            "/data": str(tmp_path),
            "port 6379": f"port {port}",
            '"$cli"': f'"$cli" -p {port}',
        }.items():
            text = text.replace(there, here)
        (tmp_path / file).write_text(text)
    process = subprocess.Popen(["sh", str(tmp_path / "start.sh")], env=path(tmp_path))
    yield port, process, tmp_path
    process.terminate()
    process.wait(10)


def path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def is_ready(folder: Path) -> bool:
    return subprocess.run(["sh", str(folder / "ready.sh")], env=path(folder)).returncode == 0


def test_redis_wants_the_secrets_password_and_shows_it_to_nobody(server: Started) -> None:
    port, process, folder = server
    until(lambda: is_ready(folder), "the probe says that it is ready")
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port).ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port, password="wrong").ping()
    # The shell has become the server, which is process 1 of its container and gets its signals.
    command = Path(f"/proc/{process.pid}/cmdline").read_text()
    assert "-server" in command and PASSWORD not in command
    config = redis.Redis(port=port, password=PASSWORD).config_get()
    assert config["maxmemory"] == str(200 * 1024 * 1024)
    assert config["maxmemory-policy"] == "volatile-lru"
    (folder / "password").write_text("another one")
    assert not is_ready(folder)
    assert config["save"] == "" and config["appendonly"] == "no"
