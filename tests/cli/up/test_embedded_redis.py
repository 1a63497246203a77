"""The Redis that comes with `pando up`: private, in memory, and able to run the fleet's scripts."""

import stat
import subprocess
from pathlib import Path

import redis

from pando.up.embedded_redis import embedded_redis
from tests.waiting import until


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_it_answers_on_a_socket_that_only_its_owner_may_use(tmp_path: Path) -> None:
    command, url = embedded_redis(tmp_path)
    server = subprocess.Popen(command.arguments, stdout=subprocess.DEVNULL)
    try:
        client = redis.Redis.from_url(url, decode_responses=True)
        until(lambda: answers(client), "it answers")
        assert client.config_get("port")["port"] == "0"
        assert client.config_get("save")["save"] == ""
        assert stat.S_IMODE((tmp_path / "redis.sock").stat().st_mode) == 0o600
        client.set("a", 1)
    finally:
        server.terminate()
        server.wait()
    assert not list(tmp_path.glob("*.rdb"))
