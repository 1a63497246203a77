"""Fetches a plan's models and adapters from the hub before the fleet starts: so one process asks
for them, shows its bars, and reports once what cannot be fetched.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pando.up.plan import UpPlan, UpPlanError, check_model
from pando.up.signals import EndSignals
from pando_fleet.guard import Guard
from pando_worker.models.loading.packaged import PACKAGED

log = logging.getLogger("pando.up")

# The result is the last line of its standard output. The hub's client draws on standard error.
_PROGRAM = """
import sys
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_adapter, resolve_model
from pando_worker.models.loading.preflight import check_adapter
what, *names = sys.argv[1:]
try:
    for name in names:
        if what == "model":
            print(resolve_model(name))
        else:
            name, _, path = name.partition("=")
            check_adapter(name, path, resolve_adapter)
            print(path)
except ModelError as error:
    sys.exit(print(error) or 1)
"""


async def downloaded(plan: UpPlan, signals: EndSignals) -> None:
    """Returns when the hub's cache has all of the plan that is not here, and it could be served, or
    after a signal. Adapters come first: they are small, and a model may be large.

    Raises UpPlanError if something cannot be fetched or served.
    """
    settings = plan.worker_settings()
    paths = settings.lora_paths
    adapters = [f"{name}={path}" for name, path in paths if not _is_here(path)]
    if adapters and not signals.count:
        await _said(plan, "adapters", adapters, signals)
    if plan.model not in PACKAGED and not _is_here(plan.model) and not signals.count:
        directory = await _said(plan, "model", [plan.model], signals)
        if directory is not None:
            check_model(plan.model, Path(directory), settings)


def _is_here(path: str) -> bool:
    return Path(path).expanduser().exists()


async def _said(plan: UpPlan, what: str, names: Sequence[str], signals: EndSignals) -> str | None:
    """The program's last line; None after a signal. Raises UpPlanError if it fails."""
    log.info("looking for %s in the hub's cache and on the hub", ", ".join(names))
    guard = Guard(Path(tempfile.mkdtemp(prefix="pando-")))
    try:
        process = await asyncio.create_subprocess_exec(
            *guard.watched((sys.executable, "-c", _PROGRAM, what, *names)),
            stdin=guard.pipe,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C comes by `signals`
        )

        def end() -> None:
            with suppress(ProcessLookupError):
                process.kill()

        with signals.heard_by(end):
            said, _ = await process.communicate()
    finally:
        guard.close()
    if signals.count:
        return None
    last = (said.decode(errors="replace").splitlines() or ["it said nothing"])[-1]
    if process.returncode:
        raise UpPlanError(f"cannot serve {plan.model}: {last}")
    return last
