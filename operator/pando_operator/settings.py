"""Every setting of the operator, in one place: flags, `PANDO_OPERATOR_…` variables and the file."""

import socket
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pando_fleet.redis.client import readable
from pando_operator.kube.terms import Terms


def _words(value: Any) -> Any:
    """ "a,b" as a list; what is no text is judged as it is."""
    return [word.strip() for word in value.split(",") if word.strip()] if _is_text(value) else value


def _pairs(value: Any) -> Any:
    """ "A=1,B=2" as a mapping; what is no text is judged as it is."""
    if not _is_text(value):
        return value
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, value.split(","))):
        name, equals, what = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{item!r} is not NAME=VALUE; several are parted by commas")
        pairs[name.strip()] = what.strip()
    return pairs


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]
Variables = Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs)]


class OperatorSettings(BaseSettings):
    """The operator: keeps each WorkerPool's replicas at the size that its load asks for."""

    # Inputs are kept out of error messages: a Redis URL may hold a password.
    model_config = SettingsConfigDict(
        env_prefix="PANDO_OPERATOR_", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    host: Annotated[str, Field(description="address that health and metrics listen on")] = "0.0.0.0"
    port: Annotated[
        int, Field(ge=0, le=65535, description="port of health and metrics, 0 picks one")
    ] = 8080
    redis: Annotated[
        str, Field(description="Redis URL of the fleet's state"), AfterValidator(readable)
    ] = "redis://127.0.0.1:6379/0"
    kubeconfig: Annotated[
        str,
        Field(
            description="file that says where the API server is; by default the pod's service"
            " account, else KUBECONFIG or ~/.kube/config"
        ),
    ] = ""
    namespaces: Annotated[
        Words, Field(description="namespaces whose pools it keeps; none: of the whole cluster")
    ] = ()

    worker_image: Annotated[
        str, Field(min_length=1, description="image of workers whose pool names none")
    ] = "pando-worker:latest"
    worker_image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Field(description="for workers whose pool names none; by default as Kubernetes decides"),
    ] = None
    worker_image_pull_secrets: Annotated[
        Words, Field(description="names of Secrets, for workers whose pool names none")
    ] = ()
    worker_redis_secret: Annotated[
        str,
        Field(
            min_length=1,
            description="name of the Secret, in each pool's namespace, that has the Redis URL"
            " for workers",
        ),
    ] = "pando-redis"
    worker_redis_secret_key: Annotated[
        str, Field(min_length=1, description="key of the URL in that Secret")
    ] = "url"
    worker_variables: Annotated[
        Variables, Field(description="further environment variables of all workers; no secrets")
    ] = {}

    lease_name: Annotated[
        str, Field(min_length=1, description="name of the Lease by which one of several leads")
    ] = "pando-operator"
    lease_namespace: Annotated[
        str, Field(min_length=1, description="namespace of the Lease, the operator's own")
    ] = "default"
    lease_duration: Annotated[
        float,
        Field(gt=0, description="seconds after which others may follow a leader that fell silent"),
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
            description="name in the Lease and in Events, the pod's: of two at once only one may"
            " have it; the host's name by default",
        ),
    ] = Field(default_factory=socket.gethostname)

    period: Annotated[
        float, Field(gt=0, le=60, description="seconds between two looks at a calm pool")
    ] = 5.0
    busy_period: Annotated[
        float, Field(gt=0, le=60, description="the same while replicas come or go")
    ] = 2.0

    @model_validator(mode="after")
    def _lease_leaves_room(self) -> Self:
        self.terms()
        return self

    def terms(self) -> Terms:
        return Terms(
            duration_s=self.lease_duration, renew_s=self.lease_renew, retry_s=self.lease_retry
        )
