"""What is simulated: a fleet, its workers and its routers, as plain data.

What a worker or a router has as a setting has its default from there; what only a simulation has is
declared here, and `settings.py` takes its defaults from here.
"""

from dataclasses import dataclass, field

from pando_router.configuration.settings import RouterSettings
from pando_sim.day_clock import SINCE_MONDAY, DayClock
from pando_worker.heartbeats import MAX_INTERVAL_S
from pando_worker.settings import WorkerSettings
from pando_worker.settings.adapters import LORA_SLOTS

# Their defaults: nothing is read from variables.
WORKER = WorkerSettings.model_construct()
ROUTER = RouterSettings.model_construct()

CONTEXT_LENGTH = 131_072
"""A worker has its model's by default; this is where no cost model says how long that is."""

START_S = 60.0
"""Of a replica, where no cost model says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """The LoRA adapters that every replica serves."""

    names: tuple[str, ...] = ()
    slots: int = LORA_SLOTS  # of them in device memory at once
    host: int = 0  # of them in host memory, the others on disk; 0: all
    load_s: float = 0.02  # from host memory into a slot
    read_s: float = 0.2  # from disk into host memory


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Every replica of the pool."""

    cost_model: str  # an included one's name, or the path of a calibration's file
    capacity_tokens: int  # of the KV pool
    context_length: int = CONTEXT_LENGTH
    page_size: int = WORKER.page_size
    chunked_prefill_size: int = WORKER.chunked_prefill_size
    max_running_requests: int = WORKER.max_running_requests
    host_tokens: int = 0  # of the host tier; 0: none
    engine: dict[str, object] = field(default_factory=dict)  # other settings of the worker, by name
    served_adapters: AdapterSpec = AdapterSpec()
    start_s: float = START_S  # from the decision to its first ready heartbeat
    start_spread: float = 0.0  # largest deviation of start times, as a share, either way
    beat_s: float = MAX_INTERVAL_S

    @property
    def longest_tokens(self) -> int:
        """Prompt and answer of one request; a longer one is refused."""
        return min(self.context_length, self.capacity_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    routers: int = 1
    clock_skew_s: float = 0.0  # largest error of each router's clock
    network_s: float = 0.0005  # one way, between router and worker
    max_outstanding: int = ROUTER.max_replica_requests  # leased at one replica; 0: no limit
    queue_requests: int = ROUTER.queue_requests  # waiting in one router; more are refused
    queue_deadline_s: float = ROUTER.queue_timeout  # longest wait, then a request is refused
    max_tries: int = ROUTER.max_tries
    bound_sessions: bool = ROUTER.bound_sessions
    retry_share: float = ROUTER.retry_share  # of the requests
    lease_s: float = ROUTER.lease_seconds
    # Reserved for an answer, unless its limit is lower.
    expected_output_tokens: int = ROUTER.expected_output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    worker: WorkerSpec
    router: RouterSpec = RouterSpec()
    replicas: int = 8  # at the start
    clock: DayClock = SINCE_MONDAY
    policy: str = ROUTER.policy  # a name that `pando_sim.policies` knows
    scaling: str = "none"  # a name that `pando_sim.scaling` knows
    session_rule: str = ""  # a name that `pando_sim.session_rules` knows; empty: none was chosen
    hpa_queue_target: float = 5.0  # waiting requests per replica, for scaling hpa_queue
    knative_target: float = 100.0  # concurrent requests per replica, for scaling knative
    seed: int = 0
    sample_s: float = 5.0  # between two samples
    slow_ttft_s: float = 2.0  # a first token later than this is late (goodput, delayed requests)
    slow_gap_s: float = 0.05  # a mean time between tokens above this is slow (goodput)
