"""What is simulated: a fleet, its workers and its routers, as plain data."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Every replica of the pool. Defaults are those of `pando worker`."""

    cost_model: str  # the name of a shipped one, or the path of a file that calibration wrote
    capacity_tokens: int  # of the KV pool
    context_length: int = 131_072
    page_size: int = 16
    chunked_prefill_size: int = 2048
    max_running_requests: int = 256
    host_tokens: int = 0  # of the host tier; 0: none
    engine: dict[str, object] = field(default_factory=dict)  # other settings of the worker, by name
    start_s: float = 60.0  # from the decision to its first heartbeat as ready
    start_spread: float = 0.0  # share by which start times differ, either way
    beat_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    routers: int = 1
    clock_skew_s: float = 0.0  # each router's clock is off by up to this
    network_s: float = 0.0005  # one way, between router and worker
    max_outstanding: int = 0  # requests leased at one replica, at most; 0: any number
    queue_requests: int = 1024  # that wait in one router; more are refused
    queue_deadline_s: float = 60.0  # a request that no replica takes for so long is refused
    max_tries: int = 3
    lease_s: float = 30.0
    expected_output_tokens: int = 256  # reserved for an answer; less where it may have less


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    worker: WorkerSpec
    router: RouterSpec = RouterSpec()
    replicas: int = 8  # at the start
    policy: str = "cache_aware"  # a name that `pando_sim.policies` knows
    scaling: str = "none"  # a name that `pando_sim.scaling` knows
    hpa_queue_target: float = 5.0  # waiting requests a replica, of scaling hpa_queue
    knative_target: float = 100.0  # requests at a time in a replica, of scaling knative
    seed: int = 0
    sample_s: float = 5.0  # between two samples
    slow_ttft_s: float = 2.0  # a first token later than this is late (goodput, delayed requests)
    slow_gap_s: float = 0.05  # a mean time between tokens above this is slow (goodput)
