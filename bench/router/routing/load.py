"""Generates load and measures it: wrk for whole answers, sse.c for streams, nginx as replicas."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.router.routing.processes import cpu_s, running, wait_for
from bench.router.routing.routers import MODEL, Running
from pando.up.free_port import free_port

SYSTEM_PROMPTS = 50
SYSTEM_BYTES = 1600  # with 300 bytes of the user's message and the JSON around them: 2 KB

_WRK_SCRIPT = """
local count = 0
local system = {}
for i = 1, %(prompts)d do
  system[i] = "prompt " .. i .. " " .. string.rep("You are a helpful assistant. ", %(repeats)d)
end
request = function()
  count = count + 1
  local body = '{"model":"%(model)s","messages":[{"role":"system","content":"'
    .. system[count %% %(prompts)d + 1] .. '"},{"role":"user","content":"question ' .. count
    .. string.rep(" and what then?", 20) .. '"}]}'
  return wrk.format("POST", "/v1/chat/completions", {["content-type"] = "application/json"}, body)
end
"""

_ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "An answer of a few words."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 500, "completion_tokens": 7, "total_tokens": 507},
    }
)
_MODELS = json.dumps(
    {
        "object": "list",
        "data": [{"id": MODEL, "object": "model"}],
        "model_path": MODEL,
        "served_model_name": MODEL,
        "is_generation": True,
    }
)


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole answers under one load: requests a second, microseconds."""

    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float  # of the router and its helpers, per request
    failures: int


@dataclass(frozen=True, slots=True)
class Streams:
    events_per_s: float
    p50_us: float  # from the replica's write to the client's read
    p99_us: float
    cpu_us: float  # per event
    failures: int


@contextmanager
def replicas(count: int, folder: Path) -> Iterator[list[str]]:
    """URLs of replicas that answer at once: one nginx on `count` ports."""
    ports = [free_port() for _ in range(count)]
    listens = "".join(f"listen 127.0.0.1:{port};" for port in ports)
    conf, log = folder / "replicas.conf", folder / "replicas.log"
    conf.write_text(
        "worker_processes 1; daemon off;"
        f"pid {folder}/replicas.pid; error_log {folder}/replicas.err;"
        "events { worker_connections 4096; } http { access_log off;"
        "keepalive_requests 1000000000; client_body_buffer_size 64k;"
        f"default_type application/json; server {{ {listens}"
        f"location /v1/chat/completions {{ return 200 '{_ANSWER}'; }}"
        f"location / {{ return 200 '{_MODELS}'; }} }} }}"
    )
    with running(["nginx", "-p", str(folder), "-c", str(conf)], log) as server:
        wait_for(f"http://127.0.0.1:{ports[-1]}/health", server, log)
        yield [f"http://127.0.0.1:{port}" for port in ports]


def whole_answers(router: Running, connections: int, seconds: float, folder: Path) -> Whole:
    """wrk with 2 KB chat bodies over `connections`."""
    script = folder / "chats.lua"
    script.write_text(
        _WRK_SCRIPT % {"prompts": SYSTEM_PROMPTS, "repeats": SYSTEM_BYTES // 29, "model": MODEL}
    )
    before = cpu_s(router.processes)
    found = subprocess.run(
        [
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency"),
            *("-s", str(script), f"http://127.0.0.1:{router.port}"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    used = cpu_s(router.processes) - before
    requests = int(_number(r"(\d+) requests in", found))
    lasted_s = _us(found, r"requests in ([\d.]+)(us|ms|s|m),") / 1e6
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", found)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+)", found)
    return Whole(
        requests / lasted_s,
        _us(found, r"50%\s+([\d.]+)(us|ms|s)"),
        _us(found, r"99%\s+([\d.]+)(us|ms|s)"),
        used / requests * 1e6,
        (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0),
    )


def compiled(folder: Path) -> Path:
    """sse.c as a program."""
    program = folder / "sse"
    source = Path(__file__).with_name("sse.c")
    compiler = shutil.which("cc") or "gcc"
    subprocess.run([compiler, "-O2", "-D_GNU_SOURCE", "-o", program, source], check=True)
    return program


@contextmanager
def streaming_replicas(
    program: Path, count: int, per_s: float, events: int, folder: Path
) -> Iterator[list[str]]:
    """URLs of `count` processes that stream."""
    if count == 0:
        yield []
        return
    port, log = free_port(), folder / f"sse-{count}.log"
    with running([str(program), "serve", str(port), f"{per_s:g}", str(events)], log) as server:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        with streaming_replicas(program, count - 1, per_s, events, folder) as others:
            yield [f"http://127.0.0.1:{port}", *others]


def streams(program: Path, router: Running, count: int, seconds: float, folder: Path) -> Streams:
    """`count` concurrent streams for `seconds`, each followed by the next."""
    body = folder / "stream.json"
    system = "You are a helpful assistant. " * (SYSTEM_BYTES // 29)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Go on."}]
    body.write_text(json.dumps({"model": MODEL, "messages": messages, "stream": True}))
    before = cpu_s(router.processes)
    output = subprocess.run(
        [str(program), "load", str(router.port), str(count), f"{seconds:g}", str(body)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    used = cpu_s(router.processes) - before
    found = json.loads(output)
    return Streams(
        found["events"] / found["seconds"],
        found["p50_us"],
        found["p99_us"],
        used / max(1, found["events"]) * 1e6,
        found["failures"],
    )


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"wrk's output lacks {pattern}:\n{text}")
    return found[1]


def _us(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"wrk's output lacks {pattern}:\n{text}")
    return float(found[1]) * {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}[found[2]]
