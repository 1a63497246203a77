"""From a cluster's traffic to a patch of its pool, and the same kind of traffic after it.

Needs the cluster that KUBECONFIG names, with images of the router, the operator and the worker as
for `make test-cluster`.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
import yaml

from pando_worker.server.machine import machine
from tests.cluster.kube import POOLS, Cluster, Object, is_ready, wait_until
from tests.cluster.load import LoadPod
from tests.cluster.release import CHAT_POOL, NAME, SERVED, Release, image, values

POOL = "chat"
SPEC: Object = CHAT_POOL | {
    "engine": {"threads": 1, "memoryGib": 0.5, "maxTotalTokens": 8192},
    "scaling": {"mode": "Auto", "minReplicas": 1, "maxReplicas": 3},
}
"""The pool before: the operator's defaults."""

NAMESPACE = "pando-test"
"""That of `make test-cluster`, as the definition of WorkerPools outlives a release and belongs to
one namespace."""

SHAPE: Object = {"words": 160, "max_tokens": 300, "pause_s": 2.0}


@contextmanager
def released(cluster: Cluster) -> Iterator[None]:
    """The chart with one pool, which is uninstalled at the end."""
    release = Release(cluster.namespace)
    release.install(values({POOL: SPEC}))
    try:
        wait_until("a worker is ready", lambda: any(map(is_ready, cluster.workers(POOL))), 180)
        yield
    finally:
        release.uninstall()


def pando(folder: Path, *words: str) -> int:
    """Runs it as a user would, and shows it; returns the exit code."""
    click.echo(f"\n$ pando {' '.join(words)}")
    return subprocess.run([sys.executable, "-m", "pando", *words], cwd=folder).returncode


def sent(load: LoadPod, clients: list[int], seconds: float) -> None:
    """Two loads in turn: so many clients for so long each; shows what they got."""
    load.count()
    for number in clients:
        load.set(number, **SHAPE)
        time.sleep(seconds)
    load.set(0)
    click.echo(f"\nClients: {load.count()}")


def recorded(folder: Path, namespace: str, since: float, trace: str, *more: str) -> None:
    """Fetches what was recorded after `since`, seconds since 1970."""
    if pando(folder, "record", "--namespace", namespace, "--output", trace, *more):
        raise click.ClickException("nothing was fetched")
    kept = []
    for line in (folder / trace).read_bytes().splitlines():
        at = msgspec.json.decode(line)
        if "pando_recording" in at or at.get("at", at.get("fleet_at", 0.0)) >= since:
            kept.append(line)
    (folder / trace).write_bytes(b"\n".join(kept) + b"\n")


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--quiet", default=2, show_default=True, help="clients in the quiet stretches")
@click.option("--busy", default=16, show_default=True, help="clients in the busy ones")
@click.option("--stretches", default=6, show_default=True, help="quiet and busy in turn")
@click.option("--seconds", default=60.0, show_default=True, help="of a stretch")
@click.option("--trials", default=24, show_default=True, help="of pando tune")
@click.option("--ttft-p99", default="2", show_default=True, help="as pando tune takes it")
@click.option("--gap-p99", default="0.05", show_default=True, help="as pando tune takes it")
def main(
    output: Path,
    quiet: int,
    busy: int,
    stretches: int,
    seconds: float,
    trials: int,
    ttft_p99: str,
    gap_p99: str,
) -> None:
    """Two loads in turn, recorded; a search; its patch applied; the same loads again."""
    output.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(NAMESPACE)
    if not cluster.find(f"/api/v1/namespaces/{cluster.namespace}"):
        cluster.create("/api/v1/namespaces", {"metadata": {"name": cluster.namespace}})
    clients = [(quiet, busy)[number % 2] for number in range(stretches)]
    where = ("--namespace", cluster.namespace)
    model = ("--cost-model", "cluster.json", "--trace-model", SERVED)
    asked = ("--ttft-p99", ttft_p99, "--gap-p99", gap_p99, "--trials", str(trials), "--anyway")
    with released(cluster):
        load = LoadPod(cluster, SERVED)
        load.start(f"http://{NAME}-router", image("operator"))
        if pando(output, "record", *where, "--on"):
            raise click.ClickException("nothing is recorded")
        began = time.time()
        sent(load, clients, seconds)
        before: Object = {"apiVersion": "pando.dev/v1alpha1", "kind": "WorkerPool"}
        before |= {"metadata": {"name": POOL}, "spec": SPEC}
        (output / "pool.yaml").write_text(yaml.safe_dump(before))
        recorded(output, cluster.namespace, began, "before.jsonl", "--cost-model", "cluster.json")
        pando(output, "sim", "prove", "before.jsonl", "--pool", "pool.yaml", *model)
        pando(output, "tune", "before.jsonl", "--pool", "pool.yaml", *model, *asked)
        tuned = "pando-tune/pool.yaml"
        pando(output, "sim", "prove", "before.jsonl", "--pool", tuned, *model)
        patch = msgspec.json.decode((output / "pando-tune" / "patch.json").read_bytes())
        if not patch.get("spec"):
            raise click.ClickException("today's manifest is the best: ask for more")
        cluster.patch(f"{POOLS}/{POOL}", patch)
        click.echo(f"\nApplied: {patch['spec']}")
        least = patch["spec"].get("scaling", {}).get("minReplicas", 1)
        wait_until(
            f"{least} workers are ready",
            lambda: sum(map(is_ready, cluster.workers(POOL))) >= least,
            180,
        )
        began = time.time()
        sent(load, clients, seconds)
        recorded(output, cluster.namespace, began, "after.jsonl")
        pando(output, "sim", "prove", "after.jsonl", "--pool", tuned, *model)
        pando(output, "pools", *where)
        load.stop()
    click.echo(f"\n{machine('cpu', 1)}")


if __name__ == "__main__":
    main()
