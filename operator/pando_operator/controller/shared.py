"""`Shared`: what the loops of all pools share."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pando_fleet.records.decisions import PastDecisions
from pando_fleet.records.expected import ExpectedPools
from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import RedisClient
from pando_fleet.registry.registry import Registry
from pando_operator.controller.observing.gpu_shares import GpuShares
from pando_operator.controller.observing.turns import Turns
from pando_operator.controller.observing.watch_caches import WatchCaches
from pando_operator.kube.client import Kube
from pando_operator.kube.events import Recorder
from pando_operator.metrics import Metrics
from pando_operator.settings import OperatorSettings
from pando_operator.worker_client import WorkerClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    kube: Kube
    caches: WatchCaches
    turns: Turns
    gpus: GpuShares
    workers: WorkerClient
    redis: RedisClient
    registry: Registry
    queues: Queues
    expected: ExpectedPools
    past: PastDecisions
    recorder: Recorder
    metrics: Metrics
    settings: OperatorSettings
    server_minor: int  # of the API server's version
    now: Callable[[], float] = time.time  # seconds since 1970
    clock: Callable[[], float] = time.monotonic
