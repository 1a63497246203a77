"""`spec` of a WorkerPool: the model, the engine's settings, the pods and their number.

Parts that Kubernetes defines stay as on the wire; `Typed` names their type, whose schema is in
`pod_schema.json`. The schema of `engine` is in `engine_schema.json`. tools/generate/crd.py writes
both files, from the Kubernetes client's models and from the worker's settings.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from pando_operator.resource.adapters import MOST_ADAPTERS, Adapter
from pando_operator.resource.base import KubernetesObject, ListMap, SpecPart, Typed
from pando_operator.resource.policy import MOST_REPLICAS
from pando_operator.resource.rules import Rule
from pando_operator.resource.scaling import Mode, Scaling

GRACE_MARGIN_S = 15
"""Seconds between the end of a worker's drain and the moment at which Kubernetes kills it."""

_GPU = "nvidia.com/gpu"
_HAS_NO_GPUS = (
    "!has(self.template.resources) || !has(self.template.resources.limits)"
    f" || !('{_GPU}' in self.template.resources.limits)"
)
_HAS_NO_ADAPTERS = "!has(self.adapters) || size(self.adapters) == 0"
_IS_ON_CUDA = "(has(self.engine) && has(self.engine.device) && self.engine.device == 'cuda')"


class Template(SpecPart):
    """What users may set on the pool's pods, beside what the operator sets."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "env[].name",
            "must not begin with PANDO_WORKER_: the worker's settings are in spec.engine",
            "!has(self.env) || self.env.all(e, !e.name.startsWith('PANDO_WORKER_'))",
        ),
        Rule(
            "labels",
            "must have no key that begins with pando.dev/ or app.kubernetes.io/: the operator sets"
            " those",
            "!has(self.labels) || self.labels.all(k,"
            " !k.startsWith('pando.dev/') && !k.startsWith('app.kubernetes.io/'))",
        ),
        Rule(
            "volumes[].name",
            "must not begin with pando-: the operator's own volumes have these names",
            "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('pando-'))",
        ),
        Rule(
            "volumeMounts[].name",
            "must be the name of one of template.volumes",
            "!has(self.volumeMounts) || self.volumeMounts.all(m,"
            " has(self.volumes) && self.volumes.exists(v, v.name == m.name))",
        ),
    )

    image: Annotated[
        str | None, Field(min_length=1, description="worker image; the operator has a default")
    ] = None
    image_pull_policy: Annotated[
        Literal["Always", "IfNotPresent", "Never"] | None,
        Field(description="when the image is pulled"),
    ] = None
    image_pull_secrets: Annotated[
        tuple[KubernetesObject, ...], Typed("LocalObjectReference"), Field(max_length=16)
    ] = ()
    resources: Annotated[
        KubernetesObject,
        Typed("ResourceRequirements"),
        Field(description="requests and limits of the worker, GPUs included"),
    ] = Field(default_factory=dict)
    env: Annotated[
        tuple[KubernetesObject, ...],
        Typed("EnvVar"),
        ListMap("name"),
        Field(max_length=128, description="more variables, such as HF_TOKEN from a Secret"),
    ] = ()
    env_from: Annotated[
        tuple[KubernetesObject, ...], Typed("EnvFromSource"), Field(max_length=32)
    ] = ()
    volumes: Annotated[
        tuple[KubernetesObject, ...], Typed("Volume"), ListMap("name"), Field(max_length=64)
    ] = ()
    volume_mounts: Annotated[
        tuple[KubernetesObject, ...],
        Typed("VolumeMount"),
        ListMap("mountPath"),
        Field(max_length=64),
    ] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: Annotated[
        tuple[KubernetesObject, ...], Typed("Toleration"), Field(max_length=64)
    ] = ()
    affinity: Annotated[KubernetesObject | None, Typed("Affinity")] = None
    topology_spread_constraints: Annotated[
        tuple[KubernetesObject, ...], Typed("TopologySpreadConstraint"), Field(max_length=16)
    ] = ()
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    service_account_name: Annotated[str | None, Field(description="its token is not mounted")] = (
        None
    )
    security_context: Annotated[
        KubernetesObject,
        Typed("SecurityContext"),
        Field(
            description="of the container; each field replaces the operator's, which follow the"
            " restricted pod security standard, with a read-only root; null takes one away"
        ),
    ] = Field(default_factory=dict)
    pod_security_context: Annotated[
        KubernetesObject,
        Typed("PodSecurityContext"),
        Field(
            description="of the pod; each field replaces the operator's; null takes one away, such"
            " as runAsUser, runAsGroup and fsGroup where the cluster chooses them (OpenShift)"
        ),
    ] = Field(default_factory=dict)
    labels: Annotated[
        dict[str, str], Field(max_length=64, description="more labels for the pods")
    ] = Field(default_factory=dict)
    annotations: Annotated[
        dict[str, str], Field(max_length=64, description="more annotations for the pods")
    ] = Field(default_factory=dict)
    termination_grace_period_seconds: Annotated[
        int | None,
        Field(
            ge=1,
            description="at least scaling.drain.timeoutSeconds + 15, which is the default",
        ),
    ] = None


class WorkerPoolSpec(SpecPart):
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "tensorParallelSize",
            f"must be the number of GPUs in template.resources.limits['{_GPU}']",
            f"{_HAS_NO_GPUS} || string(self.template.resources.limits['{_GPU}'])"
            " == string(self.tensorParallelSize)",
        ),
        Rule(
            "engine.device",
            f"must be cuda where template.resources.limits has {_GPU}",
            f"{_HAS_NO_GPUS} || {_IS_ON_CUDA}",
        ),
        Rule(
            "engine.attentionBackend",
            "must not be flashinfer unless engine.device is cuda",
            "!has(self.engine) || !has(self.engine.attentionBackend)"
            f" || self.engine.attentionBackend != 'flashinfer' || {_IS_ON_CUDA}",
        ),
        Rule(
            "engine.chunkedPrefillSize",
            "must be at least engine.pageSize",
            "!has(self.engine) || !has(self.engine.chunkedPrefillSize)"
            " || self.engine.chunkedPrefillSize >="
            " (has(self.engine.pageSize) ? self.engine.pageSize : 16)",
        ),
        Rule(
            "engine.hostMemoryGib",
            "keeps cached prefixes, so engine.radixCache must not be false",
            "!has(self.engine) || !has(self.engine.hostMemoryGib)"
            " || self.engine.hostMemoryGib == 0.0"
            " || !has(self.engine.radixCache) || self.engine.radixCache",
        ),
        Rule(
            "engine.maxBodiesBytes",
            "must be at least engine.maxBodyBytes",
            "!has(self.engine)"
            " || (has(self.engine.maxBodiesBytes) ? self.engine.maxBodiesBytes : 1073741824) >="
            " (has(self.engine.maxBodyBytes) ? self.engine.maxBodyBytes : 67108864)",
        ),
        Rule(
            "engine.loraRanks",
            "must be at least engine.maxLoraRank",
            "!has(self.engine) || !has(self.engine.loraRanks) || self.engine.loraRanks >="
            " (has(self.engine.maxLoraRank) ? self.engine.maxLoraRank : 64)",
        ),
        Rule(
            "engine.maxLoras",
            "must be at least 1 where adapters has entries: it is the number of adapters in device"
            " memory at once",
            f"{_HAS_NO_ADAPTERS}"
            " || (has(self.engine) && has(self.engine.maxLoras) && self.engine.maxLoras >= 1)",
        ),
        Rule(
            "adapters[].pin",
            "must be true for fewer than engine.maxLoras of them: a slot must be left for others",
            f"{_HAS_NO_ADAPTERS} || !has(self.engine) || !has(self.engine.maxLoras)"
            " || self.engine.maxLoras < 1"
            " || self.adapters.filter(a, a.pin).size() < self.engine.maxLoras",
        ),
        Rule(
            "adapters[].name",
            "must not be the model's own name",
            f"{_HAS_NO_ADAPTERS} || self.adapters.all(a, has(self.servedModelName)"
            " ? a.name != self.servedModelName"
            " : a.name.contains('/') || !('/' + self.model).endsWith('/' + a.name)"
            " && !('/' + self.model).endsWith('/' + a.name + '/'))",
        ),
        Rule(
            "template.terminationGracePeriodSeconds",
            f"must be at least {GRACE_MARGIN_S} above scaling.drain.timeoutSeconds",
            "!has(self.template.terminationGracePeriodSeconds)"
            " || self.template.terminationGracePeriodSeconds"
            f" >= self.scaling.drain.timeoutSeconds + {GRACE_MARGIN_S}",
        ),
    )

    model: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="Hugging Face hub id, or a directory in the pod in that format",
        ),
    ]
    served_model_name: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="name in the API; the model's last path part by default",
        ),
    ] = None
    tensor_parallel_size: Annotated[
        int, Field(ge=1, le=64, description="processes, each with a GPU, that share each layer")
    ] = 1
    gpu_type: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=63,
            description="kind of its GPUs, of which the operator's gpu_budget has a number for all"
            " pools; a replica takes tensorParallelSize of them. Without it no such limit applies",
        ),
    ] = None
    engine: Annotated[
        dict[str, Any],
        Typed("Engine"),
        Field(description="settings of the worker"),
    ] = Field(default_factory=dict)
    adapters: Annotated[
        tuple[Adapter, ...],
        ListMap("name"),
        Field(
            max_length=MOST_ADAPTERS,
            description="LoRA adapters of the model. A change is made on the running replicas, and"
            " restarts none",
        ),
    ] = ()
    template: Annotated[Template, Field(description="the pods of the pool")] = Template()
    replicas: Annotated[
        int,
        Field(
            ge=0,
            le=MOST_REPLICAS,
            description="number of pods in the modes Manual and Recommend; kubectl scale writes it."
            " In mode Auto the operator writes it, so that the pool keeps its size when the mode"
            " changes; then leave it out of what you apply",
        ),
    ] = 1
    max_unavailable: Annotated[
        int,
        Field(
            ge=0,
            description="replicas that node drains may evict at once: maxUnavailable of the pool's"
            " PodDisruptionBudget. 0 holds each node until somebody moves the pool; an only replica"
            " moves by itself",
        ),
    ] = 1
    paused: Annotated[
        bool,
        Field(
            description="a changed template replaces no pods until this is false again; the pool"
            " still scales, with pods of the new template"
        ),
    ] = False
    scaling: Annotated[
        Scaling,
        Field(
            description="number of pods, and how they join and leave; without it, the pool has"
            " spec.replicas pods"
        ),
    ] = Scaling(mode=Mode.MANUAL)

    @property
    def model_name(self) -> str:
        """The model's name in the API, by the worker's rule."""
        return self.served_model_name or self.model.rstrip("/").rsplit("/", 1)[-1]
