"""One candidate leads at a time. It stops if it cannot renew, and releases the lease at its end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pando_operator.kube.client import Kube
from pando_operator.kube.errors import Conflict
from pando_operator.kube.lease import Leader
from pando_operator.kube.resources import LEASES, Key, Object
from pando_operator.kube.terms import Terms
from tests.operator.front import Fault, Front
from tests.waiting import PATIENCE_S, pauses, until_async

TERMS = Terms(duration_s=2.0, renew_s=1.0, retry_s=0.1)


class Work:
    """Records which holders work now."""

    def __init__(self) -> None:
        self.now: list[str] = []
        self.most = 0
        self.starts = 0

    def of(self, name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.now.append(name)
            self.starts += 1
            self.most = max(self.most, len(self.now))
            try:
                await asyncio.Event().wait()
            finally:
                self.now.remove(name)

        return run


@asynccontextmanager
async def leading(
    kube: Kube, key: Key, name: str, work: Work, terms: Terms = TERMS
) -> AsyncIterator[Leader]:
    leader = Leader(kube, key, name, terms)
    task = asyncio.create_task(leader.lead(work.of(name)))
    try:
        yield leader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def spec_of(kube: Kube, key: Key) -> Object:
    spec: Object = (await kube.get(LEASES, key))["spec"]
    return spec


async def test_the_second_works_as_soon_as_the_first_has_ended_in_order(
    kube: Kube, namespace: str
) -> None:
    key, work = Key(namespace, "operator"), Work()
    long = Terms(duration_s=300.0, renew_s=200.0, retry_s=0.1)
    async with leading(kube, key, "b", work, long):
        await until_async(lambda: work.now == ["b"], "b leads")
        async with leading(kube, key, "a", work, long) as second:
            before = await spec_of(kube, key)
            await asyncio.sleep(0.5)  # several tries of a, and renewals of b
            async with asyncio.timeout(PATIENCE_S):
                for pause in pauses():
                    if (await spec_of(kube, key))["renewTime"] > before["renewTime"]:
                        break
                    await asyncio.sleep(pause)
            assert work.now == ["b"] and not second.is_leading
    # Both have ended, b last, so nobody holds the lease.
    spec = await spec_of(kube, key)
    assert spec["holderIdentity"] == ""
    async with leading(kube, key, "c", work, long):
        await until_async(lambda: work.now == ["c"], "c leads, though the lease lasts five minutes")
        spec = await spec_of(kube, key)
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("c", 1)
        assert spec["leaseDurationSeconds"] == 300


async def test_one_that_dies_without_a_word_is_followed_after_the_lease_s_time(
    kube: Kube, namespace: str
) -> None:
    key, work = Key(namespace, "operator"), Work()
    dead = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 4}
    await kube.create(
        LEASES, {"metadata": {"name": key.name, "namespace": namespace}, "spec": dead}
    )
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with leading(kube, key, "a", work) as leader:
        await until_async(lambda: work.now == ["a"], "a leads")
        assert loop.time() - started > 1.0
        assert leader.is_leading
        assert (await spec_of(kube, key))["leaseTransitions"] == 5


async def test_one_that_cannot_renew_stops_before_another_may_start(
    kube: Kube, fronted: Kube, front: Front, namespace: str
) -> None:
    key, work = Key(namespace, "operator"), Work()
    async with leading(fronted, key, "cut off", work) as first:
        await until_async(lambda: work.now == ["cut off"], "the first leads")
        async with leading(kube, key, "other", work):
            front.faults.append(Fault(lambda _: True, delay_s=60))
            await until_async(lambda: work.now == [], "the first has stopped")
            assert not first.is_leading
            await until_async(lambda: work.now == ["other"], "the other leads")
            assert work.most == 1
            front.faults.clear()


async def test_a_short_outage_is_lived_through(
    kube: Kube, fronted: Kube, front: Front, namespace: str
) -> None:
    key, work = Key(namespace, "operator"), Work()
    async with leading(fronted, key, "a", work):
        await until_async(lambda: work.now == ["a"], "a leads")
        outage = Fault(lambda _: True, status=500, times=3)
        front.faults.append(outage)
        await until_async(lambda: outage.times == 0, "three failed renewals")
        renewed = (await spec_of(kube, key))["renewTime"]
        seen = len(front.writes("leases"))
        await until_async(lambda: len(front.writes("leases")) > seen, "a renewal after it")
        assert (await spec_of(kube, key))["renewTime"] >= renewed
        assert work.starts == 1


async def test_a_lease_that_another_wrote_its_name_in_is_lost_at_once(
    kube: Kube, namespace: str
) -> None:
    key, work = Key(namespace, "operator"), Work()
    async with leading(kube, key, "a", work):
        await until_async(lambda: work.now == ["a"], "a leads")
        while True:
            lease = await kube.get(LEASES, key)
            lease["spec"] |= {"holderIdentity": "thief", "leaseDurationSeconds": 60}
            try:
                await kube.replace(LEASES, lease)
                break
            except Conflict:
                pass  # a has renewed in between
        await until_async(lambda: work.now == [], "a has stopped", 1.0)
    assert (await spec_of(kube, key))["holderIdentity"] == "thief"


async def test_work_that_fails_ends_the_leadership_with_its_error(
    kube: Kube, namespace: str
) -> None:
    key = Key(namespace, "operator")

    async def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await Leader(kube, key, "a", TERMS).lead(fail)
    assert (await spec_of(kube, key))["holderIdentity"] == ""


def test_terms_leave_room_for_tries() -> None:
    with pytest.raises(ValueError, match="2 · retry <= renew < duration"):
        Terms(duration_s=10, renew_s=10, retry_s=2)
