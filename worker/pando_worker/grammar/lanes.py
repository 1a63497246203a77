"""`Lane`: a thread that compiles grammars and serves clients in turn."""

from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock

from pando_worker.grammar.limits import compiler_threads

Job = Callable[[], None]


class Lane:
    """Runs jobs on a thread of its own, round robin over the clients that have waiting jobs."""

    def __init__(self, name: str) -> None:
        self._pool = compiler_threads(1, name)
        self._lock = Lock()
        # The waiting jobs of each client that has any. The first client is next.
        self._waiting: OrderedDict[bytes, deque[Job]] = OrderedDict()

    def __len__(self) -> int:
        """How many jobs wait."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def submit(self, client: bytes, job: Job) -> None:
        """
        Args:
            job: must not raise.
        """
        with self._lock:
            self._waiting.setdefault(client, deque()).append(job)
        self._pool.submit(self._run_next)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run_next(self) -> None:
        with self._lock:
            client, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # at the end
        job()
