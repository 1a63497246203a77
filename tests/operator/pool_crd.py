"""The WorkerPool's CRD on a test's API server."""

from typing import Any

from pando_operator.resource.crd import crd
from tests.operator.api_server import ApiServer
from tests.waiting import until

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(server: ApiServer) -> None:
    """In the form for servers before 1.25; waits until pools are served. Repeating it is
    harmless."""
    try:
        server.call("POST", _CRDS, _without_rules(crd()))
    except OSError as error:
        if "409" not in str(error):
            raise
    until(lambda: _conditions(server).get("Established") == "True", "the CRD is established")
    assert "NonStructuralSchema" not in _conditions(server)
    until(lambda: _is_served(server), "pools are served")


def _without_rules(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_rules(child)
            for name, child in value.items()
            if name != "x-kubernetes-validations"
        }
    return [_without_rules(child) for child in value] if isinstance(value, list) else value


def _conditions(server: ApiServer) -> dict[str, str]:
    status = server.call("GET", f"{_CRDS}/{crd()['metadata']['name']}").get("status", {})
    return {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}


def _is_served(server: ApiServer) -> bool:
    try:
        server.call("GET", "/apis/pando.dev/v1alpha1/workerpools")
    except OSError:
        return False
    return True
