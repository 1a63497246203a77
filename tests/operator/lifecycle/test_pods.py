"""How pods are read and counted."""

from typing import Any

from pando_operator.kube.resources import MANAGER
from pando_operator.lifecycle.census import Census, census
from pando_operator.lifecycle.departing import COST
from pando_operator.lifecycle.pods import (
    DELETION_COST,
    DRAIN,
    GHOST_S,
    TEMPLATE,
    PodView,
    Standing,
    marks_of,
    pod_view,
)
from tests.operator.lifecycle.planned import NOW, drained, pod, starting


def test_a_census_counts_each_pod_once() -> None:
    pods = [
        *(pod("a"), starting("b"), drained("c"), pod("d", deleting=True)),
        *(pod("e", stalled=True), drained("f", stalled=True)),
    ]
    assert census(pods, NOW, 60.0) == Census(
        replicas=5, ready=1, starting=1, stalled=1, draining=3, updated=1, late=1
    )


def test_a_pod_is_read_as_the_api_server_has_it() -> None:
    found = pod_view(
        {
            "metadata": {
                "name": "a",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"pod-template-hash": "h"},
                "annotations": {
                    DRAIN: "2026-01-01T00:10:00.500+00:00",
                    DELETION_COST: str(COST),
                },
            },
            "spec": {"nodeName": "n"},
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "False"},
                    {
                        "type": "ContainersReady",
                        "status": "True",
                        "lastTransitionTime": "2026-01-01T00:01:00Z",
                    },
                    {"type": "pando.dev/serving", "status": "True"},
                ],
            },
        },
        requests=3,
    )
    assert found == PodView(
        name="a",
        uid="u",
        created=1767225600.0,
        standing=Standing.UNREADY,
        containers_ready=True,
        gate=True,
        revision="h",
        ready_since=1767225660.0,
        draining_since=1767226200.5,
        deletion_cost=COST,
        requests=3,
    )
    assert not found.outdated
    bare = pod_view({"metadata": {"name": "b"}}, requests=None)
    assert bare.standing is Standing.UNASSIGNED
    assert not bare.is_serving


def test_a_ready_pod_of_a_dead_node_does_not_serve() -> None:
    """Kubernetes has taken back Ready; nobody is left to take back ContainersReady."""
    gone = pod("a", standing=Standing.UNREADY, heard=False, requests=None)
    assert gone.is_lost
    assert gone.is_useless
    assert census([gone, pod("b")], NOW, 60.0).ready == 1
    cut_off = pod("a", standing=Standing.UNREADY, heard=True)
    assert cut_off.is_serving, "the node is cut off from the API server alone"
    held = pod("a", standing=Standing.UNREADY, heard=False, requests=2)
    assert not held.is_useless, "routers still have requests there"


def test_a_deleted_pod_of_a_dead_node_counts_until_its_grace_is_over() -> None:
    def ending(for_s: float) -> PodView:
        return pod("a", deleting=True, grace_s=315, deleting_since=NOW - for_s)

    assert census([ending(315)], NOW, 60.0).draining == 1
    assert census([ending(315 + GHOST_S + 1)], NOW, 60.0).draining == 0


def test_a_pod_is_outdated_where_its_template_has_other_labels_or_annotations() -> None:
    item = {"metadata": {"name": "a", "labels": {"l": "1", "more": "x"}, "annotations": {"t": "1"}}}

    def outdated(labels: dict[str, str], annotations: dict[str, str], *ours: str) -> bool:
        template = {"metadata": {"labels": labels, "annotations": annotations}}
        fields: dict[str, Any] = {f"f:{name}": {} for name in ours}
        applied = {"f:spec": {"f:template": {"f:metadata": {"f:annotations": fields}}}}
        managed = [{"manager": MANAGER, "operation": "Apply", "fieldsV1": applied}]
        deployment = {"metadata": {"managedFields": managed}, "spec": {"template": template}}
        return pod_view(item, None, marks_of(deployment)).outdated

    assert not outdated({"l": "1"}, {"t": "1"})
    assert outdated({"l": "1"}, {"t": "2"})
    assert outdated({"l": "2"}, {"t": "1"})
    assert outdated({"l": "1"}, {"t": "1", "kubectl.kubernetes.io/restartedAt": "now"})
    assert not outdated({"l": "1"}, {"t": "2"}, "t"), "a webhook has rewritten it"
    assert outdated({"l": "1"}, {"t": "1", TEMPLATE: "new"}, "t", TEMPLATE)
    assert outdated({"l": "2"}, {"t": "1"}, "l"), "others' label of the name of our annotation"
