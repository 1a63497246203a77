"""A real Prometheus scrapes a fleet and evaluates every expression of the Grafana dashboard.

It comes from Debian's package, so these tests are skipped where neither that nor an installed one
is reachable. No operator runs without a cluster: two of its registries stand in for a leader and
one that follows.
"""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from prometheus_client import start_http_server

from pando_operator.metrics import Metrics as OperatorMetrics
from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.e2e, pytest.mark.long]

GRAFANA = Path(__file__).parents[2] / "docs" / "grafana" / "pando.json"
PACKAGE = "prometheus"
SELECTOR = r"\bpando_\w+(?:\{[^}]*\})?"
DESIRED = {"leader": 3, "follower": 7}
"""Replicas that each operator wants; what one that does not lead knows is old."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    if installed := shutil.which("prometheus"):
        return installed
    folder = tmp_path_factory.mktemp("package")
    for command in (["apt-get", "download", PACKAGE], ["dpkg-deb", "-x", "", "."]):
        command = [part or str(next(folder.glob("*.deb"))) for part in command]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        except OSError as error:
            pytest.skip(f"{PACKAGE}: {error}")
        if done.returncode:
            pytest.skip(f"{PACKAGE}: {done.stderr.strip()[-300:]}")
    return str(folder / "usr" / "bin" / "prometheus")


@pytest.fixture(scope="module")
def fleet() -> Iterator[UpProcess]:
    with UpProcess("--workers", "2") as fleet:
        yield fleet.wait_ready()


@pytest.fixture(scope="module")
def operators() -> Iterator[list[str]]:
    """Their addresses."""
    addresses, servers = [], []
    for role, wanted in DESIRED.items():
        metrics, pool = OperatorMetrics(), ("default", "m")
        metrics.leading.set(role == "leader")
        metrics.desired.labels(*pool).set(wanted)
        metrics.replicas.labels(*pool, "ready").set(wanted)
        metrics.pressure.labels(*pool).set(0.5)
        metrics.decisions.labels(*pool, "up").inc()
        metrics.start_seconds.labels(*pool).observe(20)
        port = free_port("127.0.0.1")
        servers.append(start_http_server(port, "127.0.0.1", metrics.registry))
        addresses.append(f"127.0.0.1:{port}")
    yield addresses
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it evaluates to; fails if Prometheus refuses it."""
        asked = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/query?{asked}", timeout=PATIENCE_S
            ) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            pytest.fail(f"{expression}: {error.read().decode()}")

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture(scope="module")
def prometheus(
    program: str, fleet: UpProcess, operators: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    urls = [fleet.url, *(replica["url"] for replica in fleet.replicas().values())]
    targets = [url.removeprefix("http://") for url in urls] + operators
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "pando", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    flags = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": address,
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, *(f"--{name}={value}" for name, value in flags.items())],
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(f"http://{address}")
        until(lambda: found.is_ready, "Prometheus is ready")
        _ask(fleet)
        until(lambda: len(found.query("up == 1")) == len(targets), "all targets are scraped")
        yield found
    finally:
        process.terminate()
        process.wait()


def _ask(fleet: UpProcess) -> None:
    """A stream and an answer."""
    client = openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none", timeout=PATIENCE_S)
    for stream in (True, False):
        answer = client.completions.create(
            model=MODEL, prompt="Once upon a time", max_tokens=8, stream=stream
        )
        if isinstance(answer, openai.Stream):
            assert list(answer)


def expressions() -> list[str]:
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    filled = [one.replace("$pool", ".*").replace("$__rate_interval", "1m") for one in found]
    assert not [one for one in filled if "$" in one]
    return filled


def test_each_expression_has_a_result_where_its_metrics_do(
    prometheus: Prometheus, fleet: UpProcess
) -> None:
    """One that matches labels wrongly, or takes the rate of what is no counter's, has none."""
    missing: list[str] = []

    def have_results() -> bool:
        """A rate has one after two scrapes of its counter, which each target has at its time."""
        _ask(fleet)
        missing[:] = [one for one in expressions() if _lacks_result(prometheus, one)]
        return not missing

    with contextlib.suppress(AssertionError):
        until(have_results, "each expression has a result")
    assert not missing
    assert sum(bool(prometheus.query(one)) for one in expressions()) >= 35


def _lacks_result(prometheus: Prometheus, expression: str) -> bool:
    """Whether it has none, but all of its series are there: what has not happened, such as a
    failure, has none."""
    has_series = all(prometheus.query(one) for one in re.findall(SELECTOR, expression))
    return has_series and not prometheus.query(expression)


def test_of_operators_the_leading_one_is_shown(prometheus: Prometheus) -> None:
    shown = [
        prometheus.query(one) for one in expressions() if "pando_operator_desired_replicas" in one
    ]
    assert shown
    for (series,) in shown:
        assert float(series["value"][1]) == DESIRED["leader"]


def test_the_pools_to_choose_from_are_the_fleets(prometheus: Prometheus) -> None:
    board = json.loads(GRAFANA.read_text(encoding="utf-8"))
    (query,) = (v["query"]["query"] for v in board["templating"]["list"] if v["name"] == "pool")
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert match
    series = prometheus.query(match[1])
    assert {one["metric"][match[2]] for one in series} == {"default"}
