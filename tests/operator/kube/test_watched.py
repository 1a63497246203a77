"""A watched kind follows the cluster through all kinds of failures."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pando_operator.kube.backoff import Backoff
from pando_operator.kube.client import Kube
from pando_operator.kube.resources import LEASES, Key, Object
from pando_operator.kube.watched import Watched
from tests.operator.api_server import ApiServer
from tests.operator.front import Fault, Front
from tests.waiting import PATIENCE_S, until_async


def lease(namespace: str, name: str) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"holderIdentity": "a"}}


class Seen:
    """The changes that a watch reported, as "+name", "~name" and "-name"."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.restarts: list[str] = []

    def __call__(self, old: Object | None, new: Object | None) -> None:
        sign = "+" if old is None else "-" if new is None else "~"
        item = new or old
        assert item is not None
        self.changes.append(sign + item["metadata"]["name"])


@asynccontextmanager
async def watching(kube: Kube, namespace: str) -> AsyncIterator[tuple[Watched, Seen]]:
    seen = Seen()
    watched = Watched(
        kube,
        LEASES,
        namespace,
        on_change=seen,
        on_restart=seen.restarts.append,
        backoff=Backoff(0.01, 0.05),
    )
    task = asyncio.create_task(watched.run())
    await asyncio.wait_for(watched.synced.wait(), PATIENCE_S)
    try:
        yield watched, seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(watched: Watched) -> list[str]:
    return sorted(key.name for key in watched.objects)


async def label(kube: Kube, namespace: str, name: str, value: str) -> Object:
    body = {"metadata": {"labels": {"value": value}}}
    return await kube.patch(LEASES, Key(namespace, name), body, manager="test")


async def test_existing_objects_and_each_change_are_reported_once(
    kube: Kube, namespace: str
) -> None:
    await kube.create(LEASES, lease(namespace, "first"))
    async with watching(kube, namespace) as (watched, seen):
        await kube.create(LEASES, lease(namespace, "second"))
        await label(kube, namespace, "first", "new")
        await kube.delete(LEASES, Key(namespace, "second"))

        await until_async(lambda: names(watched) == ["first"] and len(seen.changes) >= 4, "all")

        assert seen.changes == ["+first", "+second", "~first", "-second"]
        assert watched.objects[Key(namespace, "first")]["metadata"]["labels"] == {"value": "new"}
        assert seen.restarts == []


async def test_after_a_broken_connection_missed_changes_are_reported(
    kube: Kube, fronted: Kube, front: Front, namespace: str
) -> None:
    async with watching(fronted, namespace) as (watched, seen):
        await kube.create(LEASES, lease(namespace, "first"))
        await until_async(lambda: names(watched) == ["first"], "first")
        refused = Fault(lambda _: True, status=503)
        front.faults.append(refused)
        front.break_watches()
        await kube.create(LEASES, lease(namespace, "second"))
        await kube.delete(LEASES, Key(namespace, "first"))
        await until_async(lambda: refused.hits >= 3, "tries during the outage")
        assert watched.error

        front.faults.clear()

        await until_async(lambda: names(watched) == ["second"], "second alone")
        assert seen.changes == ["+first", "+second", "-first"]
        assert watched.error == ""
        # It continued from its last version, without another list.
        assert sum(one.startswith("GET") and "limit=" in one for one in front.seen) == 1


async def test_a_version_that_etcd_has_forgotten_leads_to_a_new_list(
    kube: Kube, fronted: Kube, front: Front, api_server: ApiServer, namespace: str
) -> None:
    async with watching(fronted, namespace) as (watched, seen):
        await kube.create(LEASES, lease(namespace, "gone"))
        await until_async(lambda: names(watched) == ["gone"], "gone")
        outage = Fault(lambda request: True, status=503)
        front.faults.append(outage)
        front.break_watches()
        await kube.delete(LEASES, Key(namespace, "gone"))
        await kube.create(LEASES, lease(namespace, "new"))
        api_server.compact()
        front.faults.clear()
        await until_async(lambda: names(watched) == ["new"], "the new list")

        await label(kube, namespace, "new", "1")

        await until_async(lambda: seen.changes[-1] == "~new", "the watch after it")
        assert seen.changes == ["+gone", "-gone", "+new", "~new"]


async def test_a_bookmark_is_where_the_watch_goes_on(
    fronted: Kube, front: Front, namespace: str
) -> None:
    version = "123456789"  # known only from the bookmark
    item = {"kind": "Lease", "metadata": {"resourceVersion": version}}
    event = json.dumps({"type": "BOOKMARK", "object": item}) + "\n"
    is_watch = Fault(lambda one: "watch=true" in one.path_qs, status=200, body=event, times=1)
    front.faults.append(is_watch)
    async with watching(fronted, namespace):
        goes_on = f"resourceVersion={version}&"
        await until_async(lambda: any(goes_on in one for one in front.seen), "the next watch")


async def test_an_error_within_the_stream_leads_to_a_new_list(
    kube: Kube, fronted: Kube, front: Front, namespace: str
) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    event = json.dumps({"type": "ERROR", "object": status}) + "\n"
    is_watch = Fault(lambda one: "watch=true" in one.path_qs, status=200, body=event, times=2)
    front.faults.append(is_watch)
    async with watching(fronted, namespace) as (watched, _):
        await until_async(lambda: is_watch.hits == 2, "both expiries")
        await kube.create(LEASES, lease(namespace, "p"))
        await until_async(lambda: names(watched) == ["p"], "p")
    lists = [one for one in front.seen if one.startswith("GET") and "limit=" in one]
    assert len(lists) == 3


async def test_an_object_that_was_replaced_under_its_name_during_an_outage_is_there(
    kube: Kube, fronted: Kube, front: Front, namespace: str
) -> None:
    async with watching(fronted, namespace) as (watched, _):
        first = await kube.create(LEASES, lease(namespace, "p"))
        await until_async(lambda: names(watched) == ["p"], "p")
        await kube.delete(LEASES, Key(namespace, "p"))
        second = await kube.create(LEASES, lease(namespace, "p"))
        assert first["metadata"]["uid"] != second["metadata"]["uid"]

        def uid() -> str:
            return str(watched.objects.get(Key(namespace, "p"), first)["metadata"]["uid"])

        await until_async(lambda: uid() == second["metadata"]["uid"], "the second p")


async def test_a_write_s_answer_is_seen_at_once_and_reported_once(
    kube: Kube, namespace: str
) -> None:
    await kube.create(LEASES, lease(namespace, "p"))
    async with watching(kube, namespace) as (watched, seen):
        answer = await label(kube, namespace, "p", "mine")
        watched.adopt(answer)
        assert watched.objects[Key(namespace, "p")]["metadata"]["labels"] == {"value": "mine"}
        await kube.create(LEASES, lease(namespace, "later"))
        await until_async(lambda: "later" in names(watched), "later")
        assert seen.changes == ["+p", "~p", "+later"]


async def test_a_server_that_says_nothing_makes_the_cache_old(kube: Kube, namespace: str) -> None:
    now = 0.0
    watched = Watched(kube, LEASES, namespace, on_change=lambda old, new: None, clock=lambda: now)
    task = asyncio.create_task(watched.run())
    try:
        await asyncio.wait_for(watched.synced.wait(), PATIENCE_S)
        assert watched.silent_s == 0
        now = 120.0
        assert watched.silent_s == 120
        await kube.create(LEASES, lease(namespace, "p"))
        await until_async(lambda: watched.silent_s == 0, "the server sends something")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
