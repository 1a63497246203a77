"""The rules over several fields of a WorkerPool's spec: one table for API server and operator.

Each rule has the expression that servers from 1.25 on check (CEL, `self` is the spec), and the same
in Python, which the operator checks on any version; both say the same sentence. What CEL cannot see
(does a cron expression have a meaning?) is in Python alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pando_operator.resource.scaling import Mode, PolicyFields, Schedule
from pando_operator.resource.spec import WorkerPoolSpec

GRACE_MARGIN_S = 15
"""Between the end of a worker's drain and the moment at which Kubernetes kills it."""

_GPU = "nvidia.com/gpu"
_OWN_LABELS = ("pando.dev/", "app.kubernetes.io/")


@dataclass(frozen=True, slots=True)
class Rule:
    field: str  # what is wrong where the rule does not hold, from `spec` on
    words: str  # go on as the field's sentence
    cel: str | None
    holds: Callable[[WorkerPoolSpec], bool]

    @property
    def message(self) -> str:
        return f"spec.{self.field} {self.words}"


def _of_policy(
    field: str, words: str, cel: str, holds: Callable[[PolicyFields], bool]
) -> tuple[Rule, Rule]:
    """A rule on the acting policy (`p` in the expression) and the same on each shadow policy."""
    return (
        Rule(
            f"scaling.{field}",
            words,
            cel.replace("p.", "self.scaling."),
            lambda spec: holds(spec.scaling),
        ),
        Rule(
            f"scaling.shadowPolicies[].{field}",
            words,
            f"!has(self.scaling.shadowPolicies) || self.scaling.shadowPolicies.all(p, {cel})",
            lambda spec: all(map(holds, spec.scaling.shadow_policies)),
        ),
    )


def _of_schedules(
    field: str, words: str, cel: str | None, holds: Callable[[Schedule], bool]
) -> tuple[Rule, Rule]:
    rules = _of_policy(
        f"schedules[].{field}" if field else "schedules[]",
        words,
        f"!has(p.schedules) || p.schedules.all(s, {cel})",
        lambda policy: all(map(holds, policy.schedules)),
    )
    if cel is not None:
        return rules
    first, second = (Rule(rule.field, rule.words, None, rule.holds) for rule in rules)
    return first, second


def _may_sleep(policy: PolicyFields) -> bool:
    return policy.min_replicas == 0 or any(entry.min_replicas == 0 for entry in policy.schedules)


_MAY_SLEEP = (
    "(p.minReplicas == 0 || (has(p.schedules) &&"
    " p.schedules.exists(s, has(s.minReplicas) && s.minReplicas == 0)))"
)


def _in_order(low: int | None, high: int | None) -> bool:
    return low is None or high is None or low <= high


def _cron_parses(entry: Schedule) -> bool:
    try:
        CronSim(entry.cron, datetime(2020, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def _zone_exists(entry: Schedule) -> bool:
    try:
        ZoneInfo(entry.time_zone)
    except (ValueError, OSError, KeyError):  # a bad name, a folder's, one that is not there
        return False
    return True


def _gpus(spec: WorkerPoolSpec) -> str | None:
    limits = spec.template.resources.get("limits", {})
    return str(limits[_GPU]) if _GPU in limits else None


def _names(entries: Iterable[dict[str, object]]) -> set[str]:
    return {str(entry["name"]) for entry in entries}


_HAS_GPUS = (
    "has(self.template.resources) && has(self.template.resources.limits)"
    f" && '{_GPU}' in self.template.resources.limits"
)

RULES: tuple[Rule, ...] = (
    *_of_policy(
        "maxReplicas",
        "must be at least minReplicas",
        "!has(p.maxReplicas) || p.maxReplicas >= p.minReplicas",
        lambda policy: _in_order(policy.min_replicas, policy.max_replicas),
    ),
    Rule(
        "scaling.maxReplicas",
        "is required, unless scaling.mode is Manual",
        "self.scaling.mode == 'Manual' || has(self.scaling.maxReplicas)",
        lambda spec: spec.scaling.mode is Mode.MANUAL or spec.scaling.max_replicas is not None,
    ),
    Rule(
        "scaling.shadowPolicies[].maxReplicas",
        "is required",
        "!has(self.scaling.shadowPolicies) ||"
        " self.scaling.shadowPolicies.all(p, has(p.maxReplicas))",
        lambda spec: all(p.max_replicas is not None for p in spec.scaling.shadow_policies),
    ),
    *_of_policy(
        "idleSeconds",
        "is required where minReplicas is 0: after that time without requests the pool goes to"
        " zero",
        f"!{_MAY_SLEEP} || has(p.idleSeconds)",
        lambda policy: not _may_sleep(policy) or policy.idle_seconds is not None,
    ),
    *_of_policy(
        "idleSeconds",
        "has no effect unless minReplicas, or that of a schedule, is 0",
        f"!has(p.idleSeconds) || {_MAY_SLEEP}",
        lambda policy: policy.idle_seconds is None or _may_sleep(policy),
    ),
    *_of_policy(
        "budget.replicaHours",
        "must be enough for minReplicas over periodHours",
        "!has(p.budget) || p.budget.replicaHours >= double(p.minReplicas) * p.budget.periodHours",
        lambda policy: (
            policy.budget is None
            or policy.budget.replica_hours >= policy.min_replicas * policy.budget.period_hours
        ),
    ),
    *_of_schedules(
        "",
        "needs minReplicas or maxReplicas",
        "has(s.minReplicas) || has(s.maxReplicas)",
        lambda entry: entry.min_replicas is not None or entry.max_replicas is not None,
    ),
    *_of_schedules(
        "maxReplicas",
        "must be at least its minReplicas",
        "!has(s.minReplicas) || !has(s.maxReplicas) || s.maxReplicas >= s.minReplicas",
        lambda entry: _in_order(entry.min_replicas, entry.max_replicas),
    ),
    *_of_schedules(
        "cron",
        "must be a cron expression of five fields, such as '0 8 * * MON-FRI'",
        None,
        _cron_parses,
    ),
    *_of_schedules(
        "timeZone", "must be an IANA time zone, such as Europe/Berlin", None, _zone_exists
    ),
    Rule(
        "tensorParallelSize",
        f"must be the number of GPUs in template.resources.limits['{_GPU}']",
        f"!({_HAS_GPUS}) || string(self.template.resources.limits['{_GPU}'])"
        " == string(self.tensorParallelSize)",
        lambda spec: _gpus(spec) in (None, str(spec.tensor_parallel_size)),
    ),
    Rule(
        "engine.device",
        f"must be cuda where template.resources.limits has {_GPU}",
        f"!({_HAS_GPUS}) ||"
        " (has(self.engine) && has(self.engine.device) && self.engine.device == 'cuda')",
        lambda spec: _gpus(spec) is None or spec.engine.get("device") == "cuda",
    ),
    Rule(
        "engine.attentionBackend",
        "must not be flashinfer unless engine.device is cuda",
        "!has(self.engine) || !has(self.engine.attentionBackend)"
        " || self.engine.attentionBackend != 'flashinfer'"
        " || (has(self.engine.device) && self.engine.device == 'cuda')",
        lambda spec: (
            spec.engine.get("attentionBackend") != "flashinfer"
            or spec.engine.get("device") == "cuda"
        ),
    ),
    Rule(
        "engine.chunkedPrefillSize",
        "must be at least engine.pageSize",
        "!has(self.engine) || !has(self.engine.chunkedPrefillSize)"
        " || self.engine.chunkedPrefillSize >="
        " (has(self.engine.pageSize) ? self.engine.pageSize : 16)",
        lambda spec: spec.engine.get("chunkedPrefillSize", 4096) >= spec.engine.get("pageSize", 16),
    ),
    Rule(
        "engine.hostMemoryGib",
        "keeps cached prefixes, so engine.radixCache must not be false",
        "!has(self.engine) || !has(self.engine.hostMemoryGib) || self.engine.hostMemoryGib == 0.0"
        " || !has(self.engine.radixCache) || self.engine.radixCache",
        lambda spec: not spec.engine.get("hostMemoryGib") or spec.engine.get("radixCache", True),
    ),
    Rule(
        "template.terminationGracePeriodSeconds",
        f"must be at least {GRACE_MARGIN_S} above scaling.drain.timeoutSeconds",
        "!has(self.template.terminationGracePeriodSeconds)"
        " || self.template.terminationGracePeriodSeconds"
        f" >= self.scaling.drain.timeoutSeconds + {GRACE_MARGIN_S}",
        lambda spec: (
            spec.template.termination_grace_period_seconds is None
            or spec.template.termination_grace_period_seconds
            >= spec.scaling.drain.timeout_seconds + GRACE_MARGIN_S
        ),
    ),
    Rule(
        "template.env[].name",
        "must not begin with PANDO_WORKER_: the worker's settings are in spec.engine",
        "!has(self.template.env) || self.template.env.all(e, !e.name.startsWith('PANDO_WORKER_'))",
        lambda spec: not any(n.startswith("PANDO_WORKER_") for n in _names(spec.template.env)),
    ),
    Rule(
        "template.labels",
        "must have no key that begins with pando.dev/ or app.kubernetes.io/: those are the"
        " operator's",
        "!has(self.template.labels) || self.template.labels.all(k,"
        " !k.startsWith('pando.dev/') && !k.startsWith('app.kubernetes.io/'))",
        lambda spec: not any(key.startswith(_OWN_LABELS) for key in spec.template.labels),
    ),
    Rule(
        "template.volumes[].name",
        "must not begin with pando-: those are the operator's",
        "!has(self.template.volumes) || self.template.volumes.all(v, !v.name.startsWith('pando-'))",
        lambda spec: not any(n.startswith("pando-") for n in _names(spec.template.volumes)),
    ),
    Rule(
        "template.volumeMounts[].name",
        "must be the name of one of template.volumes",
        "!has(self.template.volumeMounts) || self.template.volumeMounts.all(m,"
        " has(self.template.volumes) && self.template.volumes.exists(v, v.name == m.name))",
        lambda spec: _names(spec.template.volume_mounts) <= _names(spec.template.volumes),
    ),
)
