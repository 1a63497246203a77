"""If background work ends by an unforeseen error, the router reports that it needs a restart."""

import logging
from pathlib import Path

import pytest

from pando_fleet.registry.replica import ReplicaState
from tests.router.tenants.tenants_world import key_file
from tests.router.world import Replica, RouterClient, serving, until


async def says(router: RouterClient, status: str) -> bool:
    said = await router.get("/healthz")
    return bool(said.status == (200 if status == "ok" else 500) and said.json["status"] == status)


async def nobody_foresaw(*args: object) -> None:
    raise ZeroDivisionError("nobody foresaw this")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("pando_router.fleet_view.view.FleetView.run", "the fleet view"),
        ("pando_router.warming.warming.Warming.run", "warming"),
        ("pando_router.dashboard.sampler.Sampler.run", "the dashboard's sampling"),
        ("pando_router.placing.placers.Placers.keep_leases", "the renewal of leases"),
        ("pando_router.admission.reports.QueueReports.run", "the queue reports"),
        ("pando_router.tenants.tenants.Tenants.watch", "the watch of the API keys"),
    ],
)
async def test_a_router_whose_work_has_ended_names_it(
    valkey_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
    name: str,
) -> None:
    monkeypatch.setattr(where, nobody_foresaw)
    async with serving(valkey_url, api_keys=key_file(tmp_path)) as router:
        await until(lambda: says(router, f"{name} has ended"), "the end being reported")
    (record,) = [r for r in caplog.records if r.message == "background work has ended"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_so_does_one_that_checks_a_replica_no_more(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pando_router.health.checks.HealthChecks._check", nobody_foresaw)
    async with serving(valkey_url, health_interval=0.05) as router, Replica(valkey_url, "a"):
        await until(lambda: says(router, "checking a has ended"), "it being reported")


async def test_so_does_one_that_probes_an_upstream_no_more(
    valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pando_router.upstreams.watched.WatchedUpstream._probe_forever", nobody_foresaw
    )
    url = "http://127.0.0.1:9"
    async with serving(valkey_url, upstream=[{"url": url}]) as router:
        await until(lambda: says(router, f"the probing of {url} has ended"), "it being reported")


async def test_a_replica_that_goes_is_no_fault_of_the_router(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(valkey_url, health_interval=0.05) as router,
        Replica(valkey_url, "a") as a,
    ):
        await router.ready("a")
        await a.say(state=ReplicaState.DRAINING)  # its checks end
        await router.ready("a", state="draining")
        assert await says(router, "ok")
    assert "background work has ended" not in caplog.text


async def test_a_router_whose_work_goes_on_is_well_also_at_its_end(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(valkey_url) as router:
        assert (await router.get("/healthz")).status == 200
    assert "background work has ended" not in caplog.text
