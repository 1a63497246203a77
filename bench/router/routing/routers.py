"""The measured routers, each in front of the same replicas, with its own cache-aware policy.

Pando's replicas have no engine here, so `beating` sends their heartbeats from the measuring
process, whose CPU time is not counted.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from redis import Redis

from bench.router.own_valkey import own_valkey
from bench.router.routing.processes import START_S, running, wait_for
from pando.up.free_port import free_port
from pando_fleet.redis.client import connect
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState

MODEL = "m"
BEAT_S = 0.4


@dataclass(frozen=True, slots=True)
class Running:
    """A running router, and all processes whose CPU time is its cost."""

    name: str
    port: int
    processes: list[psutil.Process]


Start = Callable[[Sequence[str], Path], AbstractContextManager[Running]]
"""A router in front of replicas at these URLs, with a folder for its files."""


@contextmanager
def beating(redis_url: str, upstreams: Sequence[str]) -> Iterator[None]:
    """Heartbeats of ready, idle replicas at `upstreams`."""
    stop = threading.Event()

    async def beat() -> None:
        redis = connect(redis_url)
        registry = Registry(redis)
        while not stop.is_set():
            for number, url in enumerate(upstreams):
                await registry.beat(
                    "bench",
                    Heartbeat(
                        replica=f"r{number}",
                        incarnation="1",
                        url=url,
                        model=MODEL,
                        state=ReplicaState.READY,
                        capacity_tokens=1_000_000,
                        prefill_tokens_per_s=10_000.0,
                        decode_tokens_per_s=1_000.0,
                        release_tokens_per_s=5_000.0,
                    ),
                )
            await asyncio.sleep(BEAT_S)
        await redis.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(beat()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _server_of(redis_url: str) -> psutil.Process:
    with Redis.from_url(redis_url) as client:
        return psutil.Process(client.info("server")["process_id"])


@contextmanager
def pando(
    upstreams: Sequence[str],
    folder: Path,
    python: str,
    *options: str,
    under: Sequence[str] = (),
    within_s: float = START_S,
) -> Iterator[Running]:
    """`pando router`, run by `python`, with placement in its own Valkey. `under` is the command
    that runs `python`, such as valgrind's."""
    with ExitStack() as stack:
        valkey = stack.enter_context(own_valkey())
        stack.enter_context(beating(valkey.connection_url, upstreams))
        port, log = free_port(), folder / "pando.log"
        command = [
            *(*under, python, "-m", "pando", "router", "--port", str(port)),
            *("--redis", valkey.connection_url, "--leave-seconds", "0", *options),
        ]
        router = stack.enter_context(running(command, log, {"PANDO_LOG_LEVEL": "warning"}))
        wait_for(f"http://127.0.0.1:{port}/readyz", router, log, within_s)
        yield Running("pando", port, [router, _server_of(valkey.connection_url)])


def bare(python: str, *, asks_redis: bool) -> Start:
    """A proxy in Python that only forwards; see `bare.py`."""

    @contextmanager
    def start(upstreams: Sequence[str], folder: Path) -> Iterator[Running]:
        with ExitStack() as stack:
            servers, redis_port = [], 0
            if asks_redis:
                valkey = stack.enter_context(own_valkey())
                servers.append(_server_of(valkey.connection_url))
                redis_port = valkey.port
            port, log = free_port(), folder / "bare.log"
            ports = [url.rpartition(":")[2] for url in upstreams]
            program = [python, "-m", "bench.router.routing.bare"]
            command = [*program, str(port), str(redis_port), *ports]
            proxy = stack.enter_context(running(command, log))
            wait_for(f"http://127.0.0.1:{port}/health", proxy, log)
            yield Running("bare", port, [proxy, *servers])

    return start


@contextmanager
def nginx(upstreams: Sequence[str], folder: Path) -> Iterator[Running]:
    """A proxy without placement, as the limit: one worker, connections kept open."""
    port, log = free_port(), folder / "nginx-proxy.log"
    conf = folder / "nginx-proxy.conf"
    servers = "".join(f"server {url.removeprefix('http://')};" for url in upstreams)
    conf.write_text(
        "worker_processes 1; daemon off;"
        f"pid {folder}/nginx-proxy.pid; error_log {folder}/nginx-proxy.err;"
        "events { worker_connections 4096; } http { access_log off; keepalive_requests 1000000000;"
        f"upstream replicas {{ {servers} keepalive 256; keepalive_requests 1000000000; }}"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://replicas;"
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;'
        "client_body_buffer_size 64k; } } }"
    )
    with running(["nginx", "-p", str(folder), "-c", str(conf)], log) as proxy:
        wait_for(f"http://127.0.0.1:{port}/health", proxy, log)
        yield Running("nginx", port, [proxy])


def peer(name: str, program: Path, *options: str) -> Start:
    """One of the Rust routers that share SMG's command line, with `cache_aware`."""

    @contextmanager
    def start(upstreams: Sequence[str], folder: Path) -> Iterator[Running]:
        port, log = free_port(), folder / f"{name}.log"
        command = [
            *(str(program), *options, "--host", "127.0.0.1", "--port", str(port)),
            *("--worker-urls", *upstreams, "--policy", "cache_aware"),
            *("--prometheus-port", str(free_port())),
        ]
        with running(command, log) as router:
            wait_for(f"http://127.0.0.1:{port}/health", router, log)
            yield Running(name, port, [router])

    return start
