"""The script that starts the bundled Redis, with a real Redis and a real Valkey."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.fleet.redis_server import REDIS, VALKEY
from tests.helm.chart import one, render
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

PASSWORD = "aB3" * 10
CLUSTER = ("cluster", "command")
"""Rights that only a Redis Cluster needs."""


Started = tuple[int, "subprocess.Popen[bytes]", Path]


PROGRAMS = {"valkey-server": VALKEY, "redis-server": REDIS}


@contextmanager
def running(
    kind: str, folder: Path, tenants: tuple[str, ...] = (), **secret: str
) -> Iterator[Started]:
    """Starts it like its container, with the container's paths in a folder of the test."""
    (folder / kind).symlink_to(PROGRAMS[kind])
    (folder / "redis-cli").symlink_to(REDIS.with_name("redis-cli"))
    for key, value in secret.items():
        (folder / key.replace("_", "-")).write_text(value)
    port = free_port()
    rendered = render({"redis": {"auth": {"tenants": list(tenants)}}})
    for file, text in one(rendered, "ConfigMap", "pando-redis")["data"].items():
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
        process.wait(PATIENCE_S)


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
        assert process.wait(PATIENCE_S) != 0


def test_a_secret_that_changes_takes_no_running_redis_down(server: Started) -> None:
    _, _, folder = server
    until(lambda: is_ready(folder), "the probe says that it is ready")
    (folder / "password").write_text("another one")
    assert is_ready(folder)
    assert (folder / "started-with").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_tenant_s_user_reaches_the_keys_of_its_own_pools_alone(kind: str, tmp_path: Path) -> None:
    theirs = {"tenant_team-a": "kL5" * 10, "tenant_team-b": "mN7" * 10}
    with running(kind, tmp_path, ("team-a", "team-b"), password=PASSWORD, **theirs) as started:
        port, _, folder = started
        until(lambda: is_ready(folder), "the probe says that it is ready")
        user = redis.Redis(port=port, username="team-a", password=theirs["tenant_team-a"])
        user.hset("pando:{team-a/chat}:beats", "replica", "beat")
        user.zadd("pando:pools", {"team-a/chat": 1.0})
        for key in ("pando:{team-b/chat}:beats", "pando:{chat}:beats", "pando:{team-a}:beats"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.hgetall(key)
        with pytest.raises(redis.exceptions.NoPermissionError):
            user.keys()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port, username="team-b", password=theirs["tenant_team-a"]).ping()


def test_a_tenant_s_user_has_the_commands_that_the_page_lists() -> None:
    script = one(render({"redis": {"auth": {"tenants": ["team-a"]}}}), "ConfigMap", "pando-redis")[
        "data"
    ]["start.sh"]
    (line,) = re.findall(r"^user team-a on >\$tenant_0 (.*)$", script, re.M)
    page = (Path(__file__).parents[2] / "docs" / "redis.md").read_text()
    fleet = re.search(r"^user pando on .*?\n(.*?)^```$", page, re.M | re.S)
    keys = re.search(r"^user team-a on >\S+ (.*?)$", page, re.M)
    assert fleet and keys
    commands = [one for one in fleet[1].replace("\\", " ").split() if one[1:8] not in CLUSTER]
    assert line.split() == [*keys[1].split(), *commands]


def test_the_chart_gives_each_tenant_s_workers_a_secret_of_their_own() -> None:
    found = render({"redis": {"auth": {"tenants": ["team-a"]}}})
    secrets = [each for each in found if each["kind"] == "Secret"]
    mine, theirs = sorted(secrets, key=lambda each: each["metadata"].get("namespace", ""))
    assert theirs["metadata"]["name"] == mine["metadata"]["name"]
    assert theirs["metadata"]["namespace"] == "team-a"
    password = mine["stringData"]["tenant-team-a"]
    assert theirs["stringData"].keys() == {"url"}
    assert theirs["stringData"]["url"].startswith(f"redis://team-a:{password}@pando-redis.")
    assert password != mine["stringData"]["password"]
    own = {"auth": {"tenants": ["team-a"], "existingSecret": "mine"}}
    assert not [each for each in render({"redis": own}) if each["kind"] == "Secret"]
