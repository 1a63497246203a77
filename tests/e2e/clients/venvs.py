"""A virtual environment for each client, as some cannot be installed beside the others.

They lie in the user's cache, by their requirements, so that only the first run installs anything.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
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
}
# These see the packages of the tests' own environment behind theirs, so that torch and transformers
# are not installed again.
ON_TOP = {"lm-eval", "guidellm", "aiperf"}
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "pando", "test-clients")
_INSTALL_S = 600


def python_of(client: str) -> Path:
    """The interpreter that has this client; its environment is made if it is not there."""
    requirements = REQUIREMENTS[client]
    key = hashlib.sha256(f"{sys.version}{requirements}".encode()).hexdigest()[:12]
    folder = _CACHE / f"{client}-{key}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            venv.create(folder, with_pip=True, clear=True)
            if client in ON_TOP:
                own = sysconfig.get_path("purelib", vars={"base": str(folder)})
                Path(own, "tests.pth").write_text(sysconfig.get_path("purelib"))
            install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *requirements]
            subprocess.run(install, check=True, timeout=_INSTALL_S)
            (folder / "complete").touch()
    return folder / "bin/python"
