"""Mistakes at the command line, and the folder in which they are made."""

import json
import re
import shlex
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[3]
TINY = ROOT / "examples/models/pando-tiny"

# By what a reader would be doing. `NAME=VALUE` before a command sets a variable of its environment.
MISTAKES: dict[str, tuple[str, ...]] = {
    "Commands": (
        "rooter",
        "zzz",
        "workr --port 1",
        "--versoin",
        "help workr",
        "--verbose worker",
        "version now",
        "keys old",
        "sim compair trace.jsonl",
    ),
    "Options and values": (
        "worker --modle tiny",
        "worker --model",
        "worker",
        "worker tiny",
        "worker --model tiny --port no",
        "worker --model tiny --port 70000",
        "worker --model tiny --port -1",
        "worker --model tiny --page-size 0",
        "worker --model tiny --max-running-requests 0",
        "worker --model tiny --device tpu",
        "worker --model tiny --dtype float8",
        "worker --model tiny --schedule-policy best",
        "worker --model tiny --tool-call-parser none-such",
        "worker --model tiny --log-level loud",
        "worker --model tiny --redis localhost:6379",
        "worker --model tiny --redis http://localhost",
        "worker --model tiny --redis redis://localhost?timeout=long",
        "worker --model tiny --quantization int3",
        "PANDO_WORKER_PROT=1 worker --model tiny",
        "PANDO_WORKER_PORT=x worker --model tiny",
        "router --polcy random",
        "router --policy best",
        "router --redis localhost:6379",
        "router --redis redis://user:secret@localhost:port",
        "router --port 99999",
        "router --max-tries 0",
        "router --processes 0",
        "router --retry-share 2",
        "router --api-key secret",
        "router --api-keys none.yaml",
        "router --api-keys wrong-field.yaml",
        "router --api-keys short-key.yaml",
        "router --pool-policies small",
        "router --pool-policies small=best",
        "router --upstream gpu1:8000",
        "router --upstream ftp://gpu1",
        "router --host",
        "PANDO_ROUTER_POLICY=best router",
        "PANDO_ROUTER_POLCY=random router",
        "operator --metrics-prot 1",
        "operator --log-format xml",
    ),
    "Settings files": (
        "router --config none.yaml",
        "router --config twice.yaml",
        "router --config list.yaml",
        "router --config unknown.yaml",
        "router --config wrong-type.yaml",
        "router --config broken.yaml",
        "router --config empty",
        "worker --config unknown.yaml --model tiny",
    ),
    "Models": (
        "worker --model ./nowhere",
        "worker --model notes.txt",
        "worker --model ./notes.txt",
        "worker --model empty",
        "worker --model bad-config",
        "worker --model no-architecture",
        "worker --model unknown-family",
        "worker --model cut",
        "worker --model no-weights",
        "worker --model no-tokenizer",
        "worker --model bad-template",
        "worker --model tiny --memory-gib 0",
        "worker --model tiny --memory-gib 100000",
        "worker --model tiny --max-model-len 0",
        "worker --model tiny --lora-modules pirate",
        "worker --model tiny --lora-modules pirate=nowhere",
        "worker --model tiny --lora-modules pirate=nobody/nothing",
    ),
    "A fleet on this machine": (
        "up --wokers 2",
        "up --workers 0",
        "up --workers two",
        "up --workers",
        "up --model ./nowhere",
        "up --model empty",
        "up --model cut",
        "up --port 99999",
        "up --model tiny --served-model-name",
        "up --redis localhost",
        "demo --users 0",
        "demo --turns none",
    ),
    "A cluster, keys and the simulator": (
        "pools -o xml",
        "pools --kubeconfig none.yaml",
        "pools --kubeconfig broken.yaml",
        "KUBECONFIG=none.yaml pools",
        "KUBECONFIG=broken.yaml operator",
        "pools --decisions 99",
        "keys new",
        "keys new --tenant",
        "keys new --tenant a --weight heavy",
        "sim",
        "sim none.jsonl",
        "sim notes.txt",
        "sim trace.jsonl --polcy random",
        "sim trace.jsonl --policy best",
        "sim trace.jsonl --pool none.yaml",
        "sim trace.jsonl --pool list.yaml",
        "sim trace.jsonl --cost-model none",
        "sim trace.jsonl --replicas 0",
        "sim trace.jsonl --fault tomorrow",
        "sim compare",
        "sim calibrate foo",
    ),
}


def parted(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command sets, and its words."""
    words = shlex.split(command)
    first = next(n for n, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def make_folder(folder: Path) -> None:
    """Writes the files that the mistakes name."""
    (folder / "tiny").symlink_to(TINY)
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("buy milk\n")
    (folder / "trace.jsonl").symlink_to(ROOT / "examples/traces/small.jsonl")
    files = {
        "twice.yaml": "port: 1\npolicy: random\nport: 2\n",
        "list.yaml": "- port\n- 1\n",
        "unknown.yaml": "prot: 1\n",
        "wrong-type.yaml": "port: [1]\n",
        "broken.yaml": "port: {1\n",
        "wrong-field.yaml": "tenants:\n  search:\n    keys: []\n    wieght: 2\n",
        "short-key.yaml": "tenants:\n  search:\n    keys: [abc]\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    config = json.loads((TINY / "config.json").read_text())
    (_model(folder, "bad-config") / "config.json").write_text("{not json")
    (_model(folder, "no-architecture") / "config.json").write_text('{"hidden_size": 64}')
    unknown = config | {"architectures": ["NoneSuchForCausalLM"], "model_type": "none_such"}
    (_model(folder, "unknown-family") / "config.json").write_text(json.dumps(unknown))
    cut = _model(folder, "cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:200_000])
    (_model(folder, "no-weights") / "model.safetensors").unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (_model(folder, "no-tokenizer") / name).unlink()
    (_model(folder, "bad-template") / "chat_template.jinja").write_text("{% for message in %}")


def _model(folder: Path, name: str) -> Path:
    """A copy of the small model, to be broken."""
    copy = folder / name
    if not copy.exists():
        shutil.copytree(TINY, copy)
    return copy
