"""Every setting of `pando up`; those of its workers and router are in their own classes."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from pando.up.models import SMOLLM2
from pando_fleet.redis.url import readable


class UpSettings(BaseSettings):
    """Serve a model on this machine: a router, workers and Redis, until Ctrl-C.

    Options of pando worker and pando router are taken, too, such as --page-size 8 or --policy
    random: those that only one of the two has. For the others there are the variables
    PANDO_WORKER_… and PANDO_ROUTER_… (see pando worker --help and pando router --help).
    """

    model_config = SettingsConfigDict(env_prefix="PANDO_UP_", extra="forbid", frozen=True)

    model: Annotated[
        str,
        Field(
            description="smollm2 (SmolLM2-135M-Instruct), tiny (2.4 million parameters, for tests),"
            " or what pando worker --model takes: a directory, a GGUF file, a hub id"
        ),
    ] = SMOLLM2
    workers: Annotated[
        int, Field(ge=1, le=64, description="how many; they share the CPU's cores")
    ] = 2
    host: Annotated[str, Field(description="address the router listens on")] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535, description="port of the router")] = 8000
    redis: Annotated[
        str | None,
        Field(
            description="Redis URL to use instead of an embedded server; fleets in one Redis that"
            " serve the same model become one, and another model needs another --pool. With a"
            " password, better given as a variable"
        ),
        AfterValidator(lambda url: url and readable(url)),
    ] = None
    drain_seconds: Annotated[
        float, Field(ge=0, description="time for running requests after Ctrl-C, in seconds")
    ] = 5.0
