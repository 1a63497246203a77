"""The API server that the operator's tests have, for releases of the chart."""

from tests.operator.conftest import api_server, namespace

__all__ = ["api_server", "namespace"]
