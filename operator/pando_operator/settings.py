"""All settings of the operator: flags, `PANDO_OPERATOR_…` variables and the settings file."""

import socket
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pando_fleet.redis.url import readable
from pando_operator.kube.terms import Terms


def _words(value: Any) -> Any:
    """ "a,b" as a list; other types are validated as they are."""
    return [word.strip() for word in value.split(",") if word.strip()] if _is_text(value) else value


def _pairs(value: Any) -> Any:
    """ "A=1,B=2" as a mapping; other types are validated as they are."""
    if not _is_text(value):
        return value
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        name, equals, what = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{item!r} is not NAME=VALUE; separate several with commas")
        pairs[name.strip()] = what.strip()
    return pairs


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Numbers = Annotated[dict[str, Annotated[int, Field(ge=0)]], NoDecode, BeforeValidator(_pairs)]
Variables = Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)]


class OperatorSettings(BaseSettings):
    """The operator: keeps each WorkerPool at the number of replicas that its load needs."""

    # A Redis URL may contain a password, so error messages must not show inputs.
    model_config = SettingsConfigDict(
        env_prefix="PANDO_OPERATOR_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    host: Annotated[str, Field(description="address on which health and metrics are served")] = "::"
    port: Annotated[
        int, Field(ge=0, le=65535, description="port of health and metrics; 0 picks a free one")
    ] = 8080
    redis: Annotated[
        str, Field(description="Redis URL of the fleet's state"), AfterValidator(readable)
    ] = "redis://127.0.0.1:6379/0"
    kubeconfig: Annotated[
        str,
        Field(
            description="kubeconfig file; by default the pod's service account, else KUBECONFIG or"
            " ~/.kube/config"
        ),
    ] = ""
    namespaces: Annotated[
        Words, Field(description="namespaces whose pools it manages; empty: the whole cluster")
    ] = ()

    worker_image: Annotated[
        str, Field(min_length=1, description="image for workers of pools that set none")
    ] = "pando-worker:latest"
    worker_image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Field(description="for workers of pools that set none; Kubernetes' default if empty"),
    ] = None
    worker_image_pull_secrets: Annotated[
        Words, Field(description="names of Secrets, for workers of pools that set none")
    ] = ()
    worker_redis_secret: Annotated[
        str,
        Field(
            min_length=1,
            description="name of the Secret, in each pool's namespace, that holds the Redis URL"
            " for workers",
        ),
    ] = "pando-redis"
    worker_redis_secret_key: Annotated[
        str, Field(min_length=1, description="key of the URL in that Secret")
    ] = "url"
    worker_variables: Annotated[
        Variables, Field(description="more environment variables for all workers; no secrets")
    ] = {}

    gpu_budget: Annotated[
        Numbers,
        Field(
            description="GPUs that all pools together may use, by kind (spec.gpuType), such as"
            " H100=8,A100=16; kinds that are not listed have no limit"
        ),
    ] = {}

    lease_name: Annotated[
        str, Field(min_length=1, description="name of the Lease that elects the leader")
    ] = "pando-operator"
    lease_namespace: Annotated[
        str, Field(min_length=1, description="namespace of the Lease, the operator's own")
    ] = "default"
    lease_duration: Annotated[
        float,
        Field(gt=0, description="seconds after which others may replace a silent leader"),
    ] = 15.0
    lease_renew: Annotated[
        float, Field(gt=0, description="seconds without a renewal after which a leader stops")
    ] = 10.0
    lease_retry: Annotated[
        float, Field(gt=0, description="seconds between two renewals or tries")
    ] = 2.0
    identity: Annotated[
        str,
        Field(
            min_length=1,
            description="name in the Lease and in Events, unique among running operators; the"
            " host name by default, which is the pod's name",
        ),
    ] = Field(default_factory=socket.gethostname)

    period: Annotated[
        float, Field(gt=0, le=60, description="seconds between two reconciles of a stable pool")
    ] = 5.0
    busy_period: Annotated[
        float, Field(gt=0, le=60, description="the same while replicas start or leave")
    ] = 2.0

    @model_validator(mode="after")
    def _lease_leaves_room(self) -> Self:
        self.terms()
        return self

    def name_in_fleet(self, namespace: str, pool: str) -> str:
        """A pool's name for Redis, routers and workers: those of other namespaces than the
        operator's own have theirs before it, so names need to be unique in a namespace only."""
        return pool if namespace == self.lease_namespace else f"{namespace}/{pool}"

    def terms(self) -> Terms:
        return Terms(
            duration_s=self.lease_duration, renew_s=self.lease_renew, retry_s=self.lease_retry
        )
