"""A pool's adapters are replaced and removed under load: no request fails, and each answer is that
of one set of weights from its first token to its last."""

import json
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Tally
from tests.cluster.kube import POOLS, Cluster, Object, is_ready, name_of, stages, wait_until
from tests.cluster.load import CONFIG_MAPS, LoadPod
from tests.cluster.release import MODEL, RESOURCES
from tests.cluster.tuned import TOKENS, Reference

POOL = "tuned"
REPLICAS = 2
CLIENTS = 4
STEP_S = 120
NAMES = ("pirate-1", "pirate-2", "legal")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference.make(tmp_path_factory.mktemp("adapters"), *NAMES)


def adapter(name: str, source: str, **fields: bool) -> Object:
    return {"name": name, "source": f"/adapters/{source}", **fields}


@pytest.fixture(scope="module")
def tuned(cluster: Cluster, reference: Reference, load_pod: LoadPod) -> Iterator[str]:
    """A pool with two adapters, on two replicas; the files of a third are there, too."""
    for name in NAMES:
        cluster.create(CONFIG_MAPS, reference.config_map(name))
    volumes = [{"name": name, "configMap": {"name": f"adapter-{name}"}} for name in NAMES]
    mounts = [{"name": name, "mountPath": f"/adapters/{name}"} for name in NAMES]
    spec = {
        "model": MODEL,
        "servedModelName": POOL,
        "engine": {"threads": 1, "memoryGib": 0.5, "maxTotalTokens": 8192, "maxLoras": 2},
        "adapters": [adapter("pirate", "pirate-1"), adapter("legal", "legal", pin=True)],
        "template": {"resources": RESOURCES, "volumes": volumes, "volumeMounts": mounts},
        "replicas": REPLICAS,
    }
    body = {"apiVersion": "pando.dev/v1alpha1", "kind": "WorkerPool"}
    cluster.create(POOLS, body | {"metadata": {"name": POOL}, "spec": spec})
    has(cluster, "pirate", "pirate-1")
    has(cluster, "legal", "legal")
    yield POOL
    cluster.delete(f"{POOLS}/{POOL}")
    wait_until("the pool is gone", lambda: not cluster.workers(POOL), 240)
    for name in NAMES:
        cluster.delete(f"{CONFIG_MAPS}/adapter-{name}")


def row(cluster: Cluster, name: str) -> Object:
    """The adapter's state; empty without one."""
    rows = cluster.pool_status(POOL).get("adapters", ())
    found: Object = next((one for one in rows if one["name"] == name), {})
    return found


def has(cluster: Cluster, name: str, source: str) -> None:
    """Wait until all replicas serve the adapter from its source, and are ready."""

    def everywhere() -> bool:
        found, pods = row(cluster, name), cluster.workers(POOL)
        is_ours = found.get("source") == f"/adapters/{source}"
        is_everywhere = found.get("state") == f"Ready {REPLICAS}/{REPLICAS}"
        return is_ours and is_everywhere and sum(map(is_ready, pods)) == len(pods) == REPLICAS

    wait_until(
        f"{name} from {source}",
        everywhere,
        STEP_S,
        moving=lambda: (stages(cluster.workers(POOL)), row(cluster, name)),
    )


def test_an_adapter_is_replaced_under_load_and_another_is_removed(
    cluster: Cluster, reference: Reference, tuned: str, load: LoadPod, tally: Tally
) -> None:
    answers = reference.answers(2)
    asks = [[name, prompt] for prompt in answers for name in ("pirate", "legal")]
    pods = {name_of(pod): pod["metadata"]["uid"] for pod in cluster.workers(POOL)}
    first = load.seen
    load.begin(CLIENTS, asks=asks, max_tokens=TOKENS, tries=1)
    load.more(4 * CLIENTS)
    changed = [adapter("pirate", "pirate-2"), adapter("legal", "legal", pin=True)]
    cluster.patch_pool(POOL, {"adapters": changed})
    has(cluster, "pirate", "pirate-2")
    replaced = load.now()["ended"] + CLIENTS  # of those that run, some have the old weights
    load.more(4 * CLIENTS)
    load.set(0)
    load.rest()
    told = load.streams(first)["streams"]
    counts = load.count()
    tally.add("6 an adapter replaced under load", counts)
    assert counts.finished == counts.streams >= 8 * CLIENTS, counts
    assert (counts.failed, counts.cut, counts.tried_again) == (0, 0, 0), counts

    of_weights = {"pirate": ("pirate-1", "pirate-2"), "legal": ("legal",)}
    used: list[str] = []
    for stream in told:
        name, prompt = stream["ask"]
        texts = {answers[prompt][weights]: weights for weights in of_weights[name]}
        assert stream["text"] in texts, (stream, texts)
        used.append(texts[stream["text"]])
    assert set(used) == set(NAMES)
    assert "pirate-1" not in used[replaced - first :]
    assert {name_of(pod): pod["metadata"]["uid"] for pod in cluster.workers(POOL)} == pods

    # The last one of a name is gone for clients, too.
    cluster.patch_pool(POOL, {"adapters": changed[1:]})
    wait_until("pirate is gone", lambda: not row(cluster, "pirate"), STEP_S)
    wait_until("it does not exist", lambda: _status(load, "pirate") == 404, STEP_S)
    assert _status(load, "legal") == 200


def test_a_request_for_an_adapter_wakes_its_pool_and_waits_for_it(
    cluster: Cluster, reference: Reference, tuned: str, load: LoadPod
) -> None:
    """The new replica is ready once it has its adapters, the pinned one in device memory."""
    ((prompt, texts),) = reference.answers(1).items()
    asleep = {"mode": "Auto", "minReplicas": 0, "maxReplicas": 1, "idleSeconds": 5}
    cluster.patch_pool(POOL, {"scaling": asleep | {"warm": {"tokens": 0}}})
    wait_until(
        "the pool sleeps",
        lambda: not cluster.workers(POOL),
        STEP_S,
        moving=lambda: stages(cluster.workers(POOL)),
    )
    body = {
        "model": "legal",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "temperature": 0,
    }
    answer = load.ask("/v1/chat/completions", body, timeout_s=STEP_S)
    assert answer.status == 200, answer.text
    assert answer.json["choices"][0]["message"]["content"] == texts["legal"]
    [pod] = cluster.workers(POOL)
    cards = json.loads(cluster.through_pod(name_of(pod), 30000, "GET", "/v1/models"))["data"]
    assert [card["id"] for card in cards] == [POOL, "legal"]


def _status(load: LoadPod, model: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    return load.ask("/v1/chat/completions", body).status
