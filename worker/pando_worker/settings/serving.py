"""The fleet that a worker joins, its HTTP server, its end, and what it logs."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

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


class ServingSettings(BaseSettings):
    redis: Annotated[
        str,
        Field(description="Redis URL of the fleet's state, or 'none' to serve alone"),
        AfterValidator(lambda url: url if url == "none" else readable(url)),
    ] = "none"
    pool: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            description="pool to join; on Kubernetes with its namespace, NAMESPACE/NAME, if that is"
            " not the operator's",
        ),
    ] = "default"
    replica: Annotated[
        str | None, Field(description="name in the fleet; by default host name and port")
    ] = None
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="port to listen on; 0 picks a free one")
    ] = 30000
    url: Annotated[
        str | None,
        Field(description="URL for routers; by default http://host:port"),
    ] = None
    admin_token: Annotated[
        SecretStr | None,
        Field(
            min_length=1,
            description="API key that /flush_cache, /abort_request and the endpoints which load and"
            " unload adapters require; by default a random one, which heartbeats carry to routers"
            " and the operator, or none if host is an address of this machine only",
        ),
    ] = None
    max_connections: Annotated[
        int,
        Field(
            ge=64,
            description="most open connections of clients, fewer if the system allows fewer open"
            " files; above it the connection that has been idle longest is closed",
        ),
    ] = 16_384
    header_timeout: HeaderTimeout = 10.0
    max_header_bytes: MaxHeaderBytes = 64 * 1024
    body_timeout: BodyTimeout = 60.0
    min_body_rate: MinBodyRate = 1024
    max_body_bytes: Annotated[
        int, Field(ge=1, description="largest request body; larger ones get 413")
    ] = 64 * 1024 * 1024
    max_body_values: MaxBodyValues = 262_144
    max_bodies_bytes: MaxBodiesBytes = 1024 * 1024 * 1024
    keep_alive_timeout: KeepAliveTimeout = 75.0
    write_timeout: Annotated[
        float,
        Field(
            gt=0,
            description="seconds after which a client that does not read its answer is"
            " disconnected; keep it longer than the router's own",
        ),
    ] = 120.0
    max_unread_bytes: Annotated[
        int,
        Field(ge=1, description="most output that is buffered for a slow client of one request"),
    ] = 4 * 1024 * 1024
    request_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="longest duration of a request, after which it gets 504"),
    ] = None
    response_store_mib: Annotated[
        int,
        Field(ge=0, description="memory for responses of /v1/responses that later ones go on from"),
    ] = 64
    response_store_seconds: Annotated[
        float, Field(gt=0, description="time after its last use for which a response is kept")
    ] = 3600.0
    drain_seconds: Annotated[
        float, Field(ge=0, description="time for running requests after SIGTERM, in seconds")
    ] = 30.0
    hand_off_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="time after SIGTERM in which routers may compute elsewhere the prefixes"
            " that only this worker has cached, if the operator asks for it, in seconds",
        ),
    ] = 0.0
    watchdog_seconds: Annotated[
        float,
        Field(
            ge=1,
            description="seconds of silence from the engine, beyond the expected duration of its"
            " steps, after which the worker exits",
        ),
    ] = 60.0
    log_every_steps: Annotated[
        int, Field(ge=0, description="steps between two log lines on the load; 0 for none")
    ] = 200
    profile: Annotated[
        Path | None, Field(description="directory to write a trace of the first busy steps to")
    ] = None
    compat_metrics: Annotated[
        bool, Field(description="also export the main gauges under vLLM's names")
    ] = False
    otlp_endpoint: OtlpEndpoint = None
    trace_sample: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="sampled share of the traces that begin here; a router's traceparent"
            " decides for its own",
        ),
    ] = 1.0

    @model_validator(mode="after")
    def _longest_body_finds_room(self) -> Self:
        if self.max_bodies_bytes < self.max_body_bytes:
            raise ValueError("max_bodies_bytes must be at least max_body_bytes")
        return self
