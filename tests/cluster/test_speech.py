"""A pool with a Whisper hears what transformers hears, and equal files meet their encoding."""

import base64
from collections.abc import Iterator

import pytest

from tests.cluster.kube import POOLS, Cluster, Object, is_ready, stages, wait_until
from tests.cluster.load import CONFIG_MAPS, LoadPod
from tests.cluster.speech_pool import POOL, REPLICAS, worker_pool
from tests.worker.audio.hearer import POSITIONS, Hearer, save_hearer, text_of
from tests.worker.audio.sounds import Wave, encoded, noise

FILES = 4
STEP_S = 120


@pytest.fixture(scope="module")
def hearer(tmp_path_factory: pytest.TempPathFactory) -> Hearer:
    return save_hearer(tmp_path_factory.mktemp("hearer"))


def config_map(hearer: Hearer) -> Object:
    """Its model directory, of 290 kB."""
    files = {path.name: path.read_bytes() for path in hearer.path.iterdir()}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {"metadata": {"name": POOL}, "binaryData": data}


@pytest.fixture(scope="module")
def pool(cluster: Cluster, hearer: Hearer, load_pod: LoadPod) -> Iterator[None]:
    cluster.create(CONFIG_MAPS, config_map(hearer))
    cluster.create(POOLS, worker_pool())

    def are_ready() -> bool:
        pods = cluster.workers(POOL)
        return sum(map(is_ready, pods)) == len(pods) == REPLICAS

    wait_until("all replicas hear", are_ready, STEP_S, moving=lambda: stages(cluster.workers(POOL)))
    yield
    cluster.delete(f"{POOLS}/{POOL}")
    wait_until("the pool is gone", lambda: not cluster.workers(POOL), 240)
    cluster.delete(f"{CONFIG_MAPS}/{POOL}")


def ask(load: LoadPod, wave: Wave) -> tuple[str, str, int]:
    """Text, replica and cached tokens of one window."""
    fields = {"model": POOL, "language": "en", "temperature": "1e-7", "response_format": "json"}
    file = encoded(wave, "wav", "pcm_f32le")
    answer = load.ask_form("/v1/audio/transcriptions", fields, file)
    assert answer.status == 200, answer.text
    headers = {name.lower(): value for name, value in answer.headers.items()}
    assert int(headers["x-pando-prompt-tokens"]) == POSITIONS
    text: str = answer.json["text"]
    return text, headers["x-pando-replica"], int(headers["x-pando-cached-tokens"])


def test_a_pool_hears_what_transformers_hears(
    cluster: Cluster, hearer: Hearer, pool: None, load: LoadPod
) -> None:
    waves = [noise(2.0, seed=seed) for seed in range(FILES)]
    expected = [text_of(hearer.untimed(wave)).strip() for wave in waves]
    first = [ask(load, wave) for wave in waves]
    again = [ask(load, wave) for wave in waves]
    assert [text for text, _, _ in first] == [text for text, _, _ in again] == expected
    assert [cached for *_, cached in first] == [0] * FILES
    assert [(at, cached) for _, at, cached in again] == [(at, POSITIONS) for _, at, _ in first]
    status = cluster.pool_status(POOL)
    assert status["readyReplicas"] == REPLICAS
