"""The life of the HTTP process: serve, handle signals and the scheduler's end, drain, leave.

Imports everything heavy, so `pando_worker.serve` starts the scheduler process before importing it.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from pando_fleet.current import Current
from pando_fleet.free_memory import keep_little_free_memory
from pando_fleet.http.off_loop import give_the_lock_back_soon
from pando_fleet.http.server.limits import ClientLimits
from pando_fleet.http.server.server import Server
from pando_fleet.traces import Tracing
from pando_worker.audio.errors import AudioUnavailableError
from pando_worker.messages import EXIT_WITH_REASON
from pando_worker.models.config import ModelConfig
from pando_worker.server.adapters import UNLOADED, NamedAdapters
from pando_worker.server.app import make_app
from pando_worker.server.engine_client import EngineClient
from pando_worker.server.errors import ApiError
from pando_worker.server.front.admin import Admin
from pando_worker.server.front.connections import SPARE, fitting_connections
from pando_worker.server.front.gate import Gate
from pando_worker.server.front.startup import Address
from pando_worker.server.hearing import Hearing
from pando_worker.server.images import Sight
from pando_worker.server.kept_responses import KeptResponses
from pando_worker.server.metrics import Metrics, VllmLabels
from pando_worker.server.process.abilities import hearing_of, served_model, sight_of
from pando_worker.server.process.garbage import look_for_little_garbage
from pando_worker.server.process.load_bar import show_loading
from pando_worker.server.process.scheduler_process import SchedulerProcess
from pando_worker.server.process.watchdog import cpu_s, watch
from pando_worker.server.service import ServedModel, Service
from pando_worker.server.text.prompt_meter import PromptMeter
from pando_worker.server.text.tokenizer import Tokenizer
from pando_worker.settings import WorkerSettings
from pando_worker.stacks import stacks
from pando_worker.vision.errors import ImagesUnavailableError

if TYPE_CHECKING:
    from pando_worker.server.process.heartbeat import Heart

log = logging.getLogger("pando.worker")

STACKS_S = 2.0  # for all processes of the engine to write their stacks
LAST_WORDS_S = 2  # for slow clients to read their last bytes after every request has ended


def serve(
    settings: WorkerSettings, config: ModelConfig, address: Address, scheduler: SchedulerProcess
) -> int:
    """Serve until a signal or the scheduler's end; returns the process's exit code.

    `settings.model` is a directory. Raises ModelError for an unusable tokenizer, generation config
    or pooling config.
    """
    tokenizer = Tokenizer(Path(settings.model), generates=not config.is_text_encoder)
    model = served_model(settings, config, tokenizer)
    sight = sight_of(settings, config, model.name)
    hearing = hearing_of(settings, config, tokenizer)
    try:
        return uvloop.run(_serve(settings, model, sight, hearing, address, scheduler))
    finally:
        tokenizer.close()
        if hearing:
            hearing.reader.close()
        if sight:
            sight.reader.close()


async def _serve(
    settings: WorkerSettings,
    model: ServedModel,
    sight: Sight | None,
    hearing: Hearing | None,
    address: Address,
    scheduler: SchedulerProcess,
) -> int:
    engine = EngineClient(
        scheduler.command_endpoint, scheduler.event_endpoint, settings.max_unread_bytes
    )
    service = _service(settings, model, sight, hearing, engine, address)
    service.metrics.engine_stalled.set_function(lambda: engine.is_stalled)
    heart = _heart(settings, service, address)
    server = Server(make_app(service), Current(_limits(settings)), reserved=SPARE)
    keep_little_free_memory()
    give_the_lock_back_soon()
    await server.serve(address.listener)
    log.info("listening at %s", address.url)
    end = _End(service, server, scheduler.process, heart)
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(engine.receive_events())]
        background.append(tasks.create_task(_announce_ready(service, address, end)))
        background.append(tasks.create_task(show_loading(engine)))
        background.append(tasks.create_task(_watch(engine, settings, scheduler, end)))
        if heart:
            background.append(tasks.create_task(heart.run()))
        code = await end.reached()
        for task in background:
            task.cancel()
        if heart and not end.at_once.is_set():
            await heart.leave()
    await server.close(LAST_WORDS_S)
    engine.close()
    if service.tracing:
        await service.tracing.close()
    if heart:
        await heart.close()
    return code


def _service(
    settings: WorkerSettings,
    model: ServedModel,
    sight: Sight | None,
    hearing: Hearing | None,
    engine: EngineClient,
    address: Address,
) -> Service:
    adapters = NamedAdapters(engine, model.name, unload_seconds=settings.drain_seconds)
    as_vllm = VllmLabels(model.name, settings.page_size, adapters.in_use)
    return Service(
        settings=settings,
        model=model,
        engine=engine,
        # As many as the scheduler can hold, so that normally the scheduler is the one to refuse.
        gate=Gate(settings.max_queued_requests + settings.max_running_requests),
        admin=Admin.of(settings),
        metrics=Metrics(lambda: engine.stats, as_vllm=as_vllm if settings.compat_metrics else None),
        prompt_meter=PromptMeter(),
        adapters=adapters,
        kept_responses=KeptResponses(
            settings.response_store_mib << 20, settings.response_store_seconds
        ),
        sight=sight,
        hearing=hearing,
        tracing=Tracing.to(
            settings.otlp_endpoint, settings.trace_sample, "pando-worker", address.replica
        ),
    )


def _limits(settings: WorkerSettings) -> ClientLimits:
    return ClientLimits(
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        min_body_rate=settings.min_body_rate,
        idle_timeout=settings.keep_alive_timeout,
        write_timeout=settings.write_timeout,
        max_header_bytes=settings.max_header_bytes,
        max_connections=fitting_connections(settings.max_connections),
    )


async def _watch(
    engine: EngineClient, settings: WorkerSettings, scheduler: SchedulerProcess, end: "_End"
) -> None:
    """Ends the worker if the engine stops reporting. Loading has no limit."""
    await engine.loaded.wait()
    pid = scheduler.process.pid
    # A host that waits for a GPU also uses CPU time, so there it proves nothing.
    computed_s = partial(cpu_s, pid) if settings.device == "cpu" and pid else None
    silent_s = await watch(engine, settings.watchdog_seconds, computed_s)
    for found in await asyncio.to_thread(list, stacks(scheduler.directory, STACKS_S)):
        log.error("stacks of %s (process %d): %s", found.process, found.pid, found.text)
    end.fail(
        f"the engine has reported nothing for {silent_s:.0f} s: it is stuck, and this worker exits"
        " to be restarted. If single steps can take that long here, raise watchdog_seconds or"
        " lower chunked_prefill_size"
    )


class _End:
    """When and how this process ends. A first signal drains, a second one ends it at once. It also
    ends when the scheduler has ended or is stuck."""

    def __init__(
        self, service: Service, server: Server, process: BaseProcess, heart: "Heart | None"
    ) -> None:
        self._service = service
        self._server = server
        self._process = process
        self._heart = heart
        self._asked = asyncio.Event()
        self._died = asyncio.Event()
        self._failure: str | None = None
        self.at_once = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(process.sentinel, self._on_death)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)

    async def reached(self) -> int:
        """Returns the exit code when no request is left and the cache is handed off, or when the
        time for that is over."""
        gate, engine = self._service.gate, self._service.engine
        await self._first(self._asked.wait(), self._died.wait())
        gate.draining = self._server.draining = True
        engine.changed.set()  # report it to the fleet at once
        if not self._died.is_set():
            log.info("draining", extra={"requests": gate.in_flight})
            await asyncio.gather(self._requests_end(), self._cache_is_handed_off())
        if self._died.is_set():
            code, reason = 1, self._failure or self._exit_reason()
            log.log(logging.INFO if self._has_said_why else logging.ERROR, reason)
        else:
            code, reason = 0, "this worker has shut down"
            if gate.in_flight:
                log.warning("giving up unfinished requests", extra={"requests": gate.in_flight})
        engine.end(reason)
        await self._first(gate.wait_empty(), within_s=LAST_WORDS_S)
        return code

    async def _requests_end(self) -> None:
        patience = self._service.settings.drain_seconds
        await self._first(self._service.gate.wait_empty(), self._died.wait(), within_s=patience)

    async def _cache_is_handed_off(self) -> None:
        patience = self._service.settings.hand_off_seconds
        if self._heart and patience and self._service.engine.ready:
            await self._first(self._heart.handed_off(), self._died.wait(), within_s=patience)

    def fail(self, reason: str) -> None:
        self._failure = reason
        self._died.set()

    @property
    def _has_said_why(self) -> bool:
        return self._failure is None and self._process.exitcode == EXIT_WITH_REASON

    def _exit_reason(self) -> str:
        self._process.join(1)  # its pipe closes a moment before its exit code is available
        return f"the scheduler process ended (exit code {self._process.exitcode})"

    async def _first(self, *waits: Coroutine[Any, Any, Any], within_s: float | None = None) -> None:
        """Wait until one of these is done, the time is up, or waiting is pointless."""
        tasks = [asyncio.ensure_future(wait) for wait in (*waits, self.at_once.wait())]
        await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    def _on_death(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._died.set()

    def _on_signal(self) -> None:
        (self.at_once if self._asked.is_set() else self._asked).set()


async def _announce_ready(service: Service, address: Address, end: "_End") -> None:
    if service.hearing:
        try:
            await service.hearing.reader.loaded()
        except AudioUnavailableError:
            end.fail(
                "cannot serve this model: its feature extractor cannot be loaded, as logged above"
            )
            return
        service.engine.changed.set()  # report it to the fleet at once
    if service.sight:
        try:
            await service.sight.reader.loaded()
        except ImagesUnavailableError:
            end.fail(
                "cannot serve this model: its image processor cannot be loaded, as logged above"
            )
            return
        service.engine.changed.set()  # report it to the fleet at once
    await service.engine.loaded.wait()
    if not await _preloaded(service, end):
        return
    log.info("ready at %s", address.url, extra=msgspec.to_builtins(service.engine.ready))
    # Not earlier: until now the engine's processes needed the cores.
    await asyncio.wait([asyncio.wrap_future(service.model.tokenizer.load_templates())])
    look_for_little_garbage()


async def _preloaded(service: Service, end: "_End") -> bool:
    """Loads the adapters of the settings; the worker ends if one cannot be used."""
    settings = service.settings
    for name, path in settings.lora_paths:
        try:
            is_pinned = name in settings.pinned_loras
            await service.adapters.load(name, path, is_pinned=is_pinned)
        except ApiError as error:
            if error.code == UNLOADED:
                continue
            end.fail(f"cannot serve adapter {name!r} of lora_modules: {error.message}")
            return False
    service.adapters.are_preloaded = True
    service.engine.changed.set()  # report it to the fleet at once
    return True


def _heart(settings: WorkerSettings, service: Service, address: Address) -> "Heart | None":
    if settings.redis == "none":
        return None
    from pando_fleet.redis.client import connect
    from pando_worker.server.process.heartbeat import Heart

    return Heart(connect(settings.redis), service, address)
