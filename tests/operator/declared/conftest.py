"""A separate API server: these tests remove the kind WorkerPool and install it again."""

from tests.operator.conftest import api_server

__all__ = ["api_server"]
