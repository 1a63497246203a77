"""Gets a model of the hub before the fleet starts: so one process asks for it, shows its bars, and
says once why it is not to be had.
"""

import asyncio
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from pando.up.plan import UpPlan, UpPlanError, check_model
from pando.up.signals import EndSignals
from pando_fleet.guard import Guard
from pando_worker.models.loading.packaged import PACKAGED

# The result is the last line of its standard output. The hub's client draws on standard error.
_PROGRAM = """
import sys
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_model
try:
    print(resolve_model(sys.argv[1]))
except ModelError as error:
    sys.exit(print(error) or 1)
"""


def is_of_the_hub(model: str) -> bool:
    """Whether the name is neither a package's nor that of something here."""
    return model not in PACKAGED and not Path(model).expanduser().exists()


async def downloaded(plan: UpPlan, signals: EndSignals) -> None:
    """Returns when the plan's model is in the hub's cache and could be served, or after a signal.

    Raises UpPlanError if it is not to be had or cannot be served.
    """
    guard = Guard(Path(tempfile.mkdtemp(prefix="pando-")))
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM, plan.model),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C comes by `signals`
        )
        guard.watch(process.pid)

        def end() -> None:
            with suppress(ProcessLookupError):
                process.kill()

        with signals.heard_by(end):
            said, _ = await process.communicate()
    finally:
        guard.close()
    if signals.count:
        return
    last = (said.decode(errors="replace").splitlines() or ["it said nothing"])[-1]
    if process.returncode:
        raise UpPlanError(f"cannot serve {plan.model}: {last}")
    check_model(plan.model, Path(last), plan.worker_settings())
