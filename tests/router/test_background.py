"""Work beside the requests that ends by an error nobody foresaw: a restart is due, and said so."""

import logging
from pathlib import Path

import pytest

from tests.router.test_tenants import key_file
from tests.router.world import serving, until


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("pando_router.fleet_view.FleetView.run", "the fleet view"),
        ("pando_router.warming.warming.Warming.run", "warming"),
        ("pando_router.dashboard.sampler.Sampler.run", "the dashboard's sampling"),
        ("pando_router.app.renew_leases", "the renewal of leases"),
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
    async def fails(*args: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr(where, fails)
    async with serving(valkey_url, api_keys=key_file(tmp_path)) as router:

        async def is_said() -> bool:
            said = await router.get("/healthz")
            return said.status == 500 and said.json["status"] == f"{name} has ended"

        await until(is_said, "the end being told")
    (record,) = [r for r in caplog.records if r.message == "background work has ended"]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_router_whose_work_goes_on_is_well_also_at_its_end(
    valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(valkey_url) as router:
        assert (await router.get("/healthz")).status == 200
    assert "background work has ended" not in caplog.text
