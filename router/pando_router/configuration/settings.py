"""Every setting of a router, in one place: flags, `PANDO_ROUTER_…` variables and the YAML file."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pando_fleet.choices import described, one_of
from pando_fleet.http.server.settings import (
    BodyTimeout,
    HeaderTimeout,
    KeepAliveTimeout,
    MaxBodiesBytes,
    MaxBodyValues,
    MaxHeaderBytes,
    MinBodyRate,
)
from pando_fleet.redis.url import readable
from pando_fleet.traces import OtlpEndpoint
from pando_router.api_keys.key_file import read_keys
from pando_router.configuration.setting_types import RESTART, Pairs
from pando_router.configuration.upstream_spec import Upstreams, UpstreamSpec, check_distinct
from pando_router.policies import POLICIES

PolicyName = Annotated[str, one_of(POLICIES)]


class RouterSettings(BaseSettings):
    """A router: HTTP in, placement by the fleet's shared state, streaming proxy."""

    # Inputs are kept out of error messages: a Redis URL may hold a password.
    model_config = SettingsConfigDict(
        env_prefix="PANDO_ROUTER_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    host: Annotated[str, Field(description="address to listen on"), RESTART] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="port to listen on, 0 picks one"), RESTART
    ] = 8000
    redis: Annotated[
        str, Field(description="Redis URL of the fleet's state"), AfterValidator(readable), RESTART
    ] = "redis://127.0.0.1:6379/0"
    policy: Annotated[
        PolicyName,
        Field(description=described("where in its pool a request goes", POLICIES)),
    ] = "cache_aware"
    aliases: Annotated[
        Pairs[str],
        Field(description="other names for models or adapters; preferred to replicas' names"),
    ] = {}
    pool_policies: Annotated[Pairs[PolicyName], Field(description="policies of single pools")] = {}
    allow_policy_header: Annotated[
        bool, Field(description="let a request choose its policy by the header x-pando-policy")
    ] = False
    session_header: Annotated[
        str,
        Field(
            min_length=1,
            description="header that names a session, for the policy session and bound_sessions",
        ),
    ] = "x-session-id"

    shadow_policy: Annotated[
        PolicyName | None,
        Field(description="policy to compare with: it also decides some requests, in metrics only"),
    ] = None
    shadow_per_second: Annotated[
        float, Field(gt=0, le=1000, description="most requests that the shadow policy decides")
    ] = 50.0
    explain_last: Annotated[
        int,
        Field(ge=0, le=100_000, description="placed requests that can be explained afterwards"),
        RESTART,
    ] = 1000

    expected_pools: Annotated[
        Pairs[str],
        Field(
            description="pools that may have no replicas, each with its model: requests wait until"
            " one joins; in addition to those that the operator names in Redis"
        ),
    ] = {}

    upstream: Annotated[
        Upstreams,
        Field(
            description="URL of an engine that sends no heartbeats, such as vLLM; repeat it for"
            " further ones. In the file also url, name, pool, api_key_file, endpoints, max_requests"
        ),
    ] = ()
    upstream_interval: Annotated[
        float, Field(gt=0, description="between two probes of an upstream, in seconds")
    ] = 1.0

    chat_page: Annotated[bool, Field(description="a page to talk to the models, at /chat")] = False

    max_body_bytes: Annotated[
        int, Field(ge=1, description="longest request body; longer ones get 413")
    ] = 64 * 1024 * 1024
    max_body_values: MaxBodyValues = 262_144
    max_bodies_bytes: MaxBodiesBytes = 1024 * 1024 * 1024
    max_requests: Annotated[
        int,
        Field(
            ge=1,
            description="most requests in progress, and as many whose bodies still arrive; more"
            " get 503",
        ),
    ] = 4096
    max_tries: Annotated[
        int, Field(ge=1, le=16, description="most replicas to try until one answers")
    ] = 3
    connect_timeout: Annotated[
        float, Field(gt=0, description="longest time to connect to a replica, in seconds")
    ] = 2.0
    first_byte_timeout: Annotated[
        float,
        Field(gt=0, description="longest time to the first byte of an answer, in seconds"),
    ] = 600.0
    idle_timeout: Annotated[
        float, Field(gt=0, description="longest time between two pieces of an answer, in seconds")
    ] = 300.0
    request_timeout: Annotated[
        float, Field(gt=0, description="longest time of a replica's whole answer, in seconds")
    ] = 3600.0
    max_replica_connections: Annotated[
        int, Field(ge=1, description="most open connections to one replica; more requests wait")
    ] = 1024

    header_timeout: HeaderTimeout = 10.0
    body_timeout: BodyTimeout = 60.0
    min_body_rate: MinBodyRate = 1024
    keep_alive_timeout: KeepAliveTimeout = 75.0
    write_timeout: Annotated[
        float, Field(gt=0, description="longest time that a client reads nothing, in seconds")
    ] = 60.0
    max_connections: Annotated[
        int,
        Field(
            ge=1,
            description="most open connections of clients; for more, idle ones are closed, and if"
            " none is idle, new ones get 503",
        ),
    ] = 16_384
    max_header_bytes: MaxHeaderBytes = 64 * 1024

    max_replica_requests: Annotated[
        int, Field(ge=1, description="most requests at one replica, from all routers; more wait")
    ] = 256
    queue_requests: Annotated[
        int, Field(ge=0, description="most requests that wait for one pool; more get 429")
    ] = 1024
    queue_bytes: Annotated[
        int, Field(ge=0, description="most bytes of bodies that wait for one pool; more get 429")
    ] = 256 * 1024 * 1024
    queue_timeout: Annotated[
        float,
        Field(
            gt=0,
            description="longest wait in the queue, in seconds; a request may set less, see"
            " x-request-timeout",
        ),
    ] = 120.0
    bound_sessions: Annotated[
        bool,
        Field(
            description="let sessions wait whose conversations the KV memory of the pool's replicas"
            " has no room for, while those that run go on"
        ),
    ] = True
    drop_volatile_lines: Annotated[
        bool,
        Field(
            description="compare prompts without the first lines that agents write anew for every"
            " call, as workers compute them (docs/agents.md)"
        ),
    ] = True
    allow_priority_header: Annotated[
        bool,
        Field(
            description="let the header x-priority override the body's priority; smaller goes first"
        ),
    ] = False
    retry_share: Annotated[
        float,
        Field(ge=0, le=1, description="largest share of requests retried at another replica"),
    ] = 0.2

    health_interval: Annotated[
        float,
        Field(
            ge=0,
            description="time between two checks of a replica, in seconds; 0: none while it sends"
            " heartbeats. A replica without heartbeats is checked every second",
        ),
    ] = 5.0
    health_timeout: Annotated[
        float, Field(gt=0, description="longest time for a replica to answer a check, in seconds")
    ] = 3.0
    health_path: Annotated[
        str, Field(pattern=r"^/\S*$", description="path of checks; 500 and above is unhealthy")
    ] = "/healthz"
    unhealthy_after: Annotated[
        int, Field(ge=1, description="failed checks in a row until a replica is excluded")
    ] = 3
    healthy_after: Annotated[
        int, Field(ge=1, description="passed checks in a row until it is used again")
    ] = 2

    placement_timeout: Annotated[
        float,
        Field(
            gt=0,
            description="longest time that a request waits for Redis before it continues without,"
            " in seconds: for its placement, its tenant's limits and an earlier response's home"
            " (503 if several replicas may keep it)",
        ),
    ] = 0.25
    lease_seconds: Annotated[
        float,
        Field(
            ge=5,
            description="how long a lease lasts that its router does not renew, in seconds; leases"
            " of a dead router end within 5 s if another router lives",
        ),
    ] = 30.0
    expected_output_tokens: Annotated[
        int, Field(ge=1, description="tokens reserved for an answer, unless max_tokens is less")
    ] = 256

    migrate: Annotated[
        Literal["off", "deterministic", "always"],
        Field(
            description="which streams continue at another replica when theirs is lost: greedy and"
            " seeded ones, or all that can"
        ),
    ] = "deterministic"
    max_migrations: Annotated[int, Field(ge=1, description="most migrations of one stream")] = 3
    migrate_stream_bytes: Annotated[
        int, Field(ge=1, description="most bytes kept of a stream; a longer one cannot migrate")
    ] = 4 * 1024 * 1024
    migrate_memory_bytes: Annotated[
        int, Field(ge=1, description="most bytes kept of all streams together"), RESTART
    ] = 256 * 1024 * 1024

    api_keys: Annotated[
        Path | None,
        Field(description="file or folder of tenants and their API keys; none: no key is required"),
        RESTART,
    ] = None
    admin_key: Annotated[
        SecretStr | None,
        Field(
            min_length=16,
            description="an admin's API key besides those of api_keys, for the program that starts"
            " the router; without api_keys no key is required",
        ),
        RESTART,
    ] = None
    upstream_api_key: Annotated[
        SecretStr | None,
        Field(
            description="API key for the replicas, in place of the clients'; an upstream may have"
            " its own in a file"
        ),
    ] = None
    metrics_need_key: Annotated[
        bool, Field(description="/metrics requires an admin's API key if there are keys"), RESTART
    ] = False

    hot_prefix_bytes: Annotated[
        int,
        Field(ge=0, description="memory for the hottest prompts; 0: replicas are not warmed"),
        RESTART,
    ] = 64 * 1024 * 1024

    access_log_sample: Annotated[
        float,
        Field(ge=0, le=1, description="share of requests that get a log line, besides slow ones"),
    ] = 0.01
    access_log_slow_seconds: Annotated[
        float,
        Field(gt=0, description="time after which a request is slow and always logged"),
    ] = 30.0
    otlp_endpoint: Annotated[OtlpEndpoint, RESTART] = None
    trace_sample: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="share of traces kept of those that begin here; for others, the client's"
            " traceparent decides",
        ),
        RESTART,
    ] = 1.0

    record: Annotated[
        Path | None,
        Field(
            description="file to record requests for the simulator: lengths, times, outcomes and"
            " hidden chunk keys, no text; each of several processes has its own file"
        ),
        RESTART,
    ] = None
    record_on: Annotated[
        bool,
        Field(
            description="whether requests are recorded to that file, unless PATCH /recording has"
            " switched this for all routers"
        ),
    ] = True
    record_days: Annotated[
        float,
        Field(gt=0, le=3660, description="days after which a recording is deleted"),
        RESTART,
    ] = 7.0
    record_file_bytes: Annotated[
        int,
        Field(ge=64 * 1024, description="size at which a recording begins its next file"),
        RESTART,
    ] = 256 * 1024 * 1024
    record_files: Annotated[
        int,
        Field(ge=1, le=1000, description="most files of a recording; the oldest is deleted"),
        RESTART,
    ] = 4
    record_secret: Annotated[
        SecretStr | None,
        Field(
            min_length=16,
            description="secret that hides keys, the same for routers whose recordings will be"
            " replayed together; none: a random one, which the routers of one Redis share",
        ),
        RESTART,
    ] = None

    processes: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="processes that share the port; each has its own bounds, queues, breakers,"
            " hot prefixes and answers of /fleet and /route/explain; /metrics shows all",
        ),
        RESTART,
    ] = 1
    leave_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="time after SIGTERM in which /readyz is 503 but requests are served, in"
            " seconds: longer than a load balancer needs to notice; none after Ctrl-C (SIGINT)",
        ),
    ] = 5.0
    drain_seconds: Annotated[
        float, Field(ge=0, description="time for running requests after SIGTERM, in seconds")
    ] = 30.0

    @field_validator("aliases")
    @classmethod
    def _aliases_end_at_once(cls, aliases: dict[str, str]) -> dict[str, str]:
        for name, real in aliases.items():
            if real in aliases:
                raise ValueError(f"{name} is an alias of {real}, which is itself an alias")
        return aliases

    @model_validator(mode="after")
    def _longest_body_finds_room(self) -> Self:
        if self.max_bodies_bytes < self.max_body_bytes:
            raise ValueError("max_bodies_bytes must be at least max_body_bytes")
        return self

    @field_validator("record")
    @classmethod
    def _recording_has_a_folder(cls, path: Path | None) -> Path | None:
        if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise ValueError(f"{path.parent} is not a writable folder")
        if path is not None and path.is_dir():
            raise ValueError(f"{path} is a folder, not a file")
        return path

    @field_validator("upstream")
    @classmethod
    def _upstreams_are_distinct(cls, upstream: tuple[UpstreamSpec, ...]) -> Upstreams:
        check_distinct(upstream)
        return upstream

    @field_validator("api_keys")
    @classmethod
    def _api_keys_are_right(cls, path: Path | None) -> Path | None:
        if path is not None:
            read_keys(path)  # raises a ValueError
        return path
