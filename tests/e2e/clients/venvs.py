"""A virtual environment for each client, as some cannot be installed beside the others.

They lie in the user's cache, by their requirements, so that only the first run installs anything.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

# Pinned, so that a client's new version breaks no build; {name of a page's section: requirements}
REQUIREMENTS = {
    "litellm": ("litellm==1.110.2",),
    "langchain": ("langchain==1.5.2", "langchain-openai==1.7.4", "langgraph==1.2.24"),
    "instructor": ("instructor==1.17.0",),
    "llama-index": (
        "llama-index-core==0.14.25",
        "llama-index-llms-openai-like==0.8.1",
        "llama-index-embeddings-openai-like==0.4.0",
    ),
    "pydantic-ai": ("pydantic-ai-slim[openai]==2.68.0",),
    "openai-agents": ("openai-agents==0.24.0",),
    "gateways": ("smg==1.13.0", "sglang-router==0.3.2"),
    "vllm-router": ("vllm-router==0.1.17",),
    "openai-harmony": ("openai-harmony==0.0.8", "litellm==1.110.2"),
    "lm-eval": ("lm-eval[api]==0.4.13",),
    "guidellm": ("guidellm==0.8.1",),
    "aiperf": ("aiperf==0.13.0",),
    "inference-perf": ("inference-perf==0.7.0",),
    # Of its dependencies, what its benchmark imports: all of them would be a GPU's.
    "vllm": (
        "vllm==0.33.0",
        "apache-tvm-ffi==0.1.15.post2",
        "cachetools==8.0.2",
        "cbor2==6.3.0",
        "cloudpickle==3.1.3",
        "einops==0.8.2",
        "openai-harmony==0.0.8",
        "orjson==3.13.0",
        "partial-json-parser==0.2.1.1.post7",
        "py-cpuinfo==9.0.0",
        "pybase64==1.5.1",
        "uvicorn==0.54.0",
        "watchfiles==1.3.0",
        "xgrammar==0.2.8",
    ),
}
# These see the packages of the tests' own environment behind theirs, so that torch and transformers
# are not installed again.
ON_TOP = {"lm-eval", "guidellm", "aiperf", "vllm"}
WITHOUT_DEPENDENCIES = {"vllm"}
OLDEST_PYTHON = {"inference-perf": (3, 12)}
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "pando", "test-clients")
_INSTALL_S = 600


def new_enough(client: str) -> str | None:
    """A Python on this machine that the client can be installed for: that of the tests, or one on
    the path or of pyenv; None without any."""
    oldest = OLDEST_PYTHON.get(client, (3, 0))
    if sys.version_info >= oldest:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 4)]
    folders = sorted((Path.home() / ".pyenv/versions").glob("3.*"))
    found = [*names, *(str(one / "bin" / name) for one in folders for name in names)]
    return next((one for one in found if _runs(one)), None)


@cache
def _runs(python: str) -> bool:
    """Whether it is there and starts: pyenv has names on the path that do not."""
    try:
        return subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def python_of(client: str) -> Path:
    """The interpreter that has this client; its environment is made if it is not there."""
    base = new_enough(client)
    assert base, f"{client} needs Python {OLDEST_PYTHON[client]}"
    requirements = REQUIREMENTS[client]
    key = hashlib.sha256(f"{sys.version}{requirements}".encode()).hexdigest()[:12]
    folder = _CACHE / f"{client}-{key}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
            if client in ON_TOP:
                own = sysconfig.get_path("purelib", vars={"base": str(folder)})
                Path(own, "tests.pth").write_text(sysconfig.get_path("purelib"))
            install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
            if client in WITHOUT_DEPENDENCIES:
                install.append("--no-deps")
            subprocess.run([*install, *requirements], check=True, timeout=_INSTALL_S)
            (folder / "complete").touch()
    return folder / "bin/python"
