"""Runs the operator as a process."""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

from pando_operator.kube.configuration import load_configuration
from pando_operator.kube.errors import KubeError
from pando_operator.settings import OperatorSettings

log = logging.getLogger("pando.operator")


def run(settings: OperatorSettings, configure_logging: Callable[[], None]) -> int:
    """Runs until SIGTERM or SIGINT and returns the exit code 0; returns 1 if it cannot listen, if
    no cluster is configured, or after a defect."""
    configure_logging()
    return asyncio.run(_serve(settings))


async def _serve(settings: OperatorSettings) -> int:
    async with AsyncExitStack() as closing:
        try:
            configuration = await load_configuration(settings.kubeconfig)
        except KubeError as error:
            log.error("cannot start: %s", " ".join(str(error).split()))
            return 1
        # Imported once there is a cluster, so that a mistake is reported before this loads.
        from pando_operator.kube.client import Kube
        from pando_operator.operator import Operator

        operator = Operator(settings, Kube(configuration))
        closing.push_async_callback(operator.close)
        try:
            await operator.listen(closing)
        except OSError as error:
            log.error("cannot listen: %s", error)
            return 1
        leading = asyncio.create_task(operator.lead())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leading.cancel)
        try:
            await leading
        except asyncio.CancelledError:
            log.info("stopped")
            return 0
        except Exception:
            log.exception("the operator failed")
        return 1
