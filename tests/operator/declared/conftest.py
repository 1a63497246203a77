"""An API server of their own: these tests take the WorkerPool's kind away and bring it back."""

from tests.operator.conftest import api_server

__all__ = ["api_server"]
