"""Runs a worker: starts the scheduler process, then serves HTTP in this process until a signal.

SIGTERM or SIGINT starts draining: new requests get 503, running ones finish, the replica leaves the
fleet, and the exit code is 0. A second signal ends the worker at once. The scheduler process
ignores both signals (a terminal's Ctrl-C reaches it too), because it has to work while this process
drains; it ends with this process.
"""

import faulthandler
import logging
import signal
from collections.abc import Callable
from types import FrameType

from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_adapter, resolve_model
from pando_worker.models.loading.preflight import preflight
from pando_worker.server.front.startup import CannotStartError, bind
from pando_worker.server.process.scheduler_process import SchedulerMain, scheduler_process
from pando_worker.settings import WorkerSettings
from pando_worker.stacks import STACKS_SIGNAL

log = logging.getLogger("pando.worker")


def _scheduler_main(
    settings: WorkerSettings,
    command_endpoint: str,
    event_endpoint: str,
    configure_logging: Callable[[], None],
) -> None:
    # Imported only in the new process, which this one starts before it imports anything heavy.
    from pando_worker.engine.process import run_scheduler

    run_scheduler(settings, command_endpoint, event_endpoint, configure_logging)


def run(
    settings: WorkerSettings,
    configure_logging: Callable[[], None],
    scheduler_main: SchedulerMain = _scheduler_main,
) -> int:
    """Serve until a signal; returns the exit code: 1 if it cannot start or the scheduler ended.

    `configure_logging` and `scheduler_main` run in the scheduler process.
    """
    faulthandler.register(STACKS_SIGNAL)  # to stderr
    signal.signal(signal.SIGTERM, _interrupt)  # until there is a server that can drain
    try:
        return _run(settings, configure_logging, scheduler_main)
    except KeyboardInterrupt:
        return 0
    except ModelError as error:
        log.error("cannot serve this model: %s", error)
    except CannotStartError as error:
        log.error("cannot start: %s", error)
    return 1


def _run(
    settings: WorkerSettings, configure_logging: Callable[[], None], scheduler_main: SchedulerMain
) -> int:
    model_dir = resolve_model(settings.model)
    config = preflight(model_dir, settings, resolve_adapter)
    found = settings.model_copy(
        update={
            "model": str(model_dir),
            "served_model_name": settings.served_name,
        }
    )
    with scheduler_process(scheduler_main, found, configure_logging) as scheduler:
        address = bind(settings)
        with address.listener:
            from pando_worker.server.process.lifecycle import serve

            return serve(found, config, address, scheduler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
