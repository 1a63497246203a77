"""Every setting of `pando sim`: positional trace, flags, `PANDO_SIM_…` variables and the file.

A pool is defined by its manifest; only what a simulation needs is here.
"""

from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pando_fleet.choices import described, one_of
from pando_sim.policies import POLICIES
from pando_sim.scaling import SCALERS
from pando_sim.session_rules import SESSION_RULES
from pando_sim.spec import START_S, FleetSpec, WorkerSpec
from pando_sim.traces.formats import FORMATS

ALL = "all"
"""All policies, scalings or rules for sessions."""
NO_SCALING = "none"
"""The scaling that keeps the pool's size."""

FLEET = FleetSpec(worker=WorkerSpec(cost_model="h100-llama-3.1-8b-fp8", capacity_tokens=1))
"""For its defaults; how much room a worker has is found when the runs are planned."""
ROUTER = FLEET.router
ADAPTERS = FLEET.worker.served_adapters


def _words(value: Any) -> Any:
    """Parses "a,b" into a list; returns any other type unchanged."""
    return [word.strip() for word in value.split(",") if word.strip()] if _is_text(value) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


Word = TypeVar("Word")
Words = Annotated[tuple[Word, ...], NoDecode, BeforeValidator(_words)]
PolicyName = Annotated[str, one_of(POLICIES, ALL)]
ScalingName = Annotated[str, one_of(SCALERS, ALL, NO_SCALING)]
SessionRuleName = Annotated[str, one_of(SESSION_RULES, ALL)]


class ReplaySettings(BaseSettings):
    """The trace, the pool, and everything around them that is simulated: what every command has
    that replays a trace."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    trace: Annotated[
        Words[str],
        Field(
            min_length=1,
            description="requests: "
            + ", ".join(known.help for known in FORMATS.values())
            + "; several files are merged by time",
            json_schema_extra={"positional": True},
        ),
    ]
    pool: Annotated[
        Path | None,
        Field(
            description="WorkerPool manifest, as for kubectl apply: its engine, scaling, replicas"
            " and tensorParallelSize are used; default: 4 replicas with the worker's defaults"
        ),
    ] = None
    cost_model: Annotated[
        str,
        Field(description="cost model of a worker: the name of an included one, or a file's path"),
    ] = FLEET.worker.cost_model
    capacity_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            description="KV tokens of a replica; default: engine.maxTotalTokens of the manifest,"
            " else what the cost model's machine holds",
        ),
    ] = None
    context_length: Annotated[
        int | None,
        Field(
            ge=2,
            description="most tokens of a prompt and its answer; default: engine.contextLength of"
            " the manifest, else the model's; with --sessions as many as the KV pool holds",
        ),
    ] = None
    host_tokens: Annotated[
        int | None,
        Field(
            ge=0,
            description="KV tokens of a replica's host tier; default: what engine.hostMemoryGib"
            " of the manifest holds",
        ),
    ] = None
    adapters: Annotated[
        int,
        Field(
            ge=0,
            le=10_000,
            description="LoRA adapters that each conversation of the trace draws one of; 0: those"
            " that a recording names",
        ),
    ] = 0
    adapter_zipf: Annotated[
        float,
        Field(ge=0, description="how unequally popular they are: Zipf's exponent; 0: equally"),
    ] = 1.0
    adapter_slots: Annotated[
        int | None,
        Field(
            ge=1,
            description="adapters in a replica's device memory at once; default: engine.maxLoras of"
            " the manifest, else 8",
        ),
    ] = None
    host_adapters: Annotated[
        int,
        Field(ge=0, description="adapters in a replica's host memory, the others on disk; 0: all"),
    ] = ADAPTERS.host
    adapter_load_seconds: Annotated[
        float, Field(gt=0, description="of loading an adapter from host memory into a slot")
    ] = ADAPTERS.load_s
    adapter_read_seconds: Annotated[
        float, Field(ge=0, description="of reading an adapter from disk into host memory")
    ] = ADAPTERS.read_s
    start_seconds: Annotated[
        float | None,
        Field(
            ge=0,
            description="from a replica's creation until it is ready, in seconds; default: what the"
            f" cost model says, else {START_S:g}",
        ),
    ] = None
    start_spread: Annotated[
        float,
        Field(ge=0, lt=1, description="largest deviation of start times, as a share, either way"),
    ] = FLEET.worker.start_spread
    routers: Annotated[int, Field(ge=1, le=1024, description="routers that share the requests")] = (
        ROUTER.routers
    )
    clock_skew_seconds: Annotated[
        float, Field(ge=0, description="largest error of a router's clock, in seconds")
    ] = ROUTER.clock_skew_s
    network_seconds: Annotated[
        float, Field(ge=0, description="delay between router and worker, one way, in seconds")
    ] = ROUTER.network_s
    max_replica_requests: Annotated[
        int, Field(ge=1, description="most requests at one replica, from all routers; more wait")
    ] = ROUTER.max_outstanding
    queue_requests: Annotated[
        int, Field(ge=0, description="most requests that wait in one router; more are refused")
    ] = ROUTER.queue_requests
    queue_timeout: Annotated[
        float, Field(gt=0, description="longest wait in the queue until refusal, in seconds")
    ] = ROUTER.queue_deadline_s
    bound_sessions: Annotated[
        bool,
        Field(
            description="let sessions wait whose conversations the KV memory of the replicas has no"
            " room for; for Pando's own policies"
        ),
    ] = ROUTER.bound_sessions
    max_tries: Annotated[
        int, Field(ge=1, le=16, description="most replicas to try until one answers")
    ] = ROUTER.max_tries
    strict: Annotated[
        bool,
        Field(
            description="refuse a trace with a line that cannot be played; by default such lines"
            " are skipped, counted and reported at the end"
        ),
    ] = False
    take: Annotated[int | None, Field(ge=1, description="most requests of the trace to play")] = (
        None
    )
    repeat: Annotated[
        int, Field(ge=1, description="times to play the trace, each with new conversations")
    ] = 1
    speed: Annotated[
        float, Field(gt=0, description="speed of arrivals; 2: twice as many requests a second")
    ] = 1.0
    closed_loop: Annotated[
        bool, Field(description="let a request of a session wait for the previous answer")
    ] = True
    answer_tokens_per_second: Annotated[
        float,
        Field(
            gt=0,
            description="speed at which the trace's answers were written, if it does not say;"
            " determines how long a person paused",
        ),
    ] = 100.0
    trace_model: Annotated[
        str | None,
        Field(
            description="play only requests for this model, if the trace names models; none: all"
        ),
    ] = None
    image_rule: Annotated[
        str | None,
        Field(
            description="for traces with images or audio, how many tokens the model takes for one:"
            ' JSON, as /fleet shows it of a worker, such as {"kind": "fixed", "tokens": 576}'
        ),
    ] = None
    tokenizer: Annotated[
        Path | None,
        Field(
            description="a model's tokenizer.json, for traces with text; none: 4 bytes per token"
        ),
    ] = None
    day_hours: Annotated[
        float | None,
        Field(
            gt=0,
            description="make a day of the trace: repeat it as often as needed, with a rate that"
            " rises and falls once; off by default",
        ),
    ] = None
    day_trough: Annotated[
        float, Field(gt=0, le=1, description="lowest rate of the day, as a share of the trace's")
    ] = 0.2
    day_bursts: Annotated[int, Field(ge=0, description="bursts in the day")] = 6
    day_burst_factor: Annotated[
        float, Field(gt=0, description="rate in a burst, as a multiple of the day's")
    ] = 2.0
    day_burst_seconds: Annotated[
        float, Field(gt=0, description="length of a burst, in seconds")
    ] = 300.0
    seed: Annotated[int, Field(description="the same seed gives the same run, bit for bit")] = (
        FLEET.seed
    )
    jobs: Annotated[
        int | None, Field(ge=1, description="runs at a time; default: one per core")
    ] = None

    @model_validator(mode="after")
    def _a_day_repeats_by_itself(self) -> Self:
        if self.day_hours is not None and self.repeat != 1:
            raise ValueError("day_hours repeats the trace as often as needed; leave out repeat")
        return self


class SimSettings(ReplaySettings):
    """Replays a trace of requests on a fleet of any size, in virtual time.

    Placement, scheduler, caches and scaling are Pando's own code; the GPU (a cost model), the
    network and the clock are simulated. Prints a table, and writes report.html, results.json and
    CSV files. Each combination of policy, scaling and session rule is a separate run in its own
    process.

    pando sim compare TRACE runs all policies, Pando's and those of other routers, and with
    --sessions all rules for sessions; pando sim calibrate URL measures a worker's cost model; pando
    sim prove TRACE compares a recording with its replay. Each has its own --help.
    """

    model_config = SettingsConfigDict(env_prefix="PANDO_SIM_", extra="forbid", frozen=True)

    policy: Annotated[
        Words[PolicyName],
        Field(
            min_length=1,
            description="placement policy, of Pando or of another router (docs/simulator.md);"
            " repeat it for further runs, or use 'all' for every policy",
        ),
    ] = (FLEET.policy,)
    replicas: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description="fixed number of replicas, overrides the manifest's scaling",
        ),
    ] = None
    scaling: Annotated[
        Words[ScalingName],
        Field(
            description="scaler of the pool, within the manifest's bounds; repeat it for further"
            " runs, or use 'all' for every scaler; default: the operator if the manifest's"
            " scaling.mode is Auto, else none"
        ),
    ] = ()
    hpa_queue_target: Annotated[
        float, Field(gt=0, description="for scaling hpa_queue: waiting requests per replica")
    ] = FLEET.hpa_queue_target
    knative_target: Annotated[
        float,
        Field(gt=0, description="for scaling knative: concurrent requests per replica"),
    ] = FLEET.knative_target
    fault: Annotated[
        Words[str],
        Field(description="fault at a time, such as die:replica-1@600; repeat it for more"),
    ] = ()
    sessions: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="for a trace of agents' sessions: how many run at once; a new one begins"
            " when one ends, and each call is sent after the answer to the one before",
        ),
    ] = None
    session_hours: Annotated[
        float, Field(gt=0, description="time for which sessions are kept running, in hours")
    ] = 4.0
    session_rule: Annotated[
        Words[SessionRuleName],
        Field(
            description=described("which calls of sessions go first", SESSION_RULES)
            + "; repeat it for further runs, or use 'all' for every rule; default: the manifest's"
            " schedulePolicy, and bound_sessions"
        ),
    ] = ()
    shared_tools: Annotated[
        bool,
        Field(
            description="count tool descriptions of equal size as the same text in all sessions;"
            " the trace does not say whether they are"
        ),
    ] = True
    slow_ttft_seconds: Annotated[
        float, Field(gt=0, description="a first token after this time is late, in seconds")
    ] = FLEET.slow_ttft_s
    slow_gap_seconds: Annotated[
        float,
        Field(gt=0, description="a request with a larger mean time between tokens is slow"),
    ] = FLEET.slow_gap_s
    sample_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            description="time between two samples of the pool; default: a thousandth of the trace,"
            " 0.5 to 60 s",
        ),
    ] = None
    output: Annotated[Path, Field(description="folder for the report and the files")] = Path(
        "pando-sim"
    )
    csv: Annotated[bool, Field(description="write a CSV row for each request and sample")] = True

    @model_validator(mode="after")
    def _size_is_fixed_or_scaled(self) -> Self:
        if self.replicas is not None and any(name != "none" for name in self.scaling):
            raise ValueError("replicas fixes the size, scaling changes it: set only one of them")
        return self

    @model_validator(mode="after")
    def _sessions_have_no_times(self) -> Self:
        """What shapes requests with times does nothing to sessions."""
        if self.sessions is None:
            for name in self.policy:
                if name != ALL and POLICIES[name].is_for_sessions:
                    raise ValueError(f"{name} is for agents' sessions: say how many, by sessions")
            if self.session_rule:
                raise ValueError("session_rule is for agents' sessions: say how many, by sessions")
            return self
        if self.session_rule and "bound_sessions" in self.model_fields_set:
            raise ValueError("session_rule says whether sessions wait: leave out bound_sessions")
        for name in ("take", "repeat", "speed", "closed_loop", "day_hours", "adapters"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for requests that have times: leave out sessions")
        return self
