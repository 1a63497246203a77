"""The API server of the operator's tests, for releases of the chart."""

from tests.operator.conftest import api_server, namespace

__all__ = ["api_server", "namespace"]
