"""A cancellation that a call to Redis lost.

redis-py waits with asyncio.wait_for, which before Python 3.12 loses a cancellation that comes
together with its result: only the task itself still knows. Who no longer leads must not act, so
this is asked after calls to Redis, before acting and before waiting.
"""

import asyncio


def check_cancelled() -> None:
    """Raises CancelledError where this task was cancelled."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
