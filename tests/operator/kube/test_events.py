"""Events for users: one per change; a repetition raises the count."""

from pando_operator.kube.client import Kube
from pando_operator.kube.events import Recorder
from pando_operator.kube.resources import EVENTS, LEASES, Object, key_of
from tests.operator.front import Fault, Front


async def some_object(kube: Kube, namespace: str) -> Object:
    return await kube.create(
        LEASES,
        {"metadata": {"name": "pool", "namespace": namespace}, "spec": {"holderIdentity": "a"}},
    )


async def events(kube: Kube, namespace: str) -> list[Object]:
    return (await kube.list(EVENTS, namespace))[0]


async def test_an_event_names_its_object_reason_and_source(kube: Kube, namespace: str) -> None:
    about = await some_object(kube, namespace)
    await Recorder(kube, "operator-0").record(about, "Normal", "ScaledUp", "from 1 to 2: load")

    (event,) = await events(kube, namespace)

    assert (event["type"], event["reason"], event["message"]) == (
        "Normal",
        "ScaledUp",
        "from 1 to 2: load",
    )
    assert event["involvedObject"]["kind"] == "Lease"
    assert event["involvedObject"]["uid"] == about["metadata"]["uid"]
    assert event["source"]["component"] == "pando-operator"
    assert event["count"] == 1


async def test_the_same_again_raises_the_count_and_other_words_are_another_event(
    kube: Kube, namespace: str
) -> None:
    about, recorder = await some_object(kube, namespace), Recorder(kube, "operator-0")
    for message in ("to 2", "to 3", "to 2", "to 2"):
        await recorder.record(about, "Normal", "Scaled", message)

    counts = {event["message"]: event["count"] for event in await events(kube, namespace)}

    assert counts == {"to 2": 3, "to 3": 1}


async def test_an_event_that_the_server_has_dropped_or_that_is_old_is_written_again(
    kube: Kube, namespace: str
) -> None:
    now = 0.0
    about = await some_object(kube, namespace)
    recorder = Recorder(kube, "operator-0", clock=lambda: now)
    await recorder.record(about, "Normal", "Scaled", "to 2")
    (first,) = await events(kube, namespace)
    metadata = first["metadata"]
    await kube.delete(EVENTS, key_of(first))
    await recorder.record(about, "Normal", "Scaled", "to 2")
    (second,) = await events(kube, namespace)
    assert second["metadata"]["name"] != metadata["name"]
    now = 4000.0
    await recorder.record(about, "Normal", "Scaled", "to 2")
    assert [event["count"] for event in await events(kube, namespace)] == [1, 1]


async def test_a_long_message_is_cut_and_an_unreachable_server_costs_no_error(
    kube: Kube, fronted: Kube, front: Front, namespace: str
) -> None:
    about = await some_object(kube, namespace)
    await Recorder(kube, "operator-0").record(about, "Warning", "Degraded", "ä" * 1000)
    (event,) = await events(kube, namespace)
    assert event["message"] == "ä" * 512
    front.faults.append(Fault(lambda _: True, status=500))
    await Recorder(fronted, "operator-0").record(about, "Normal", "Scaled", "lost")
    assert len(await events(kube, namespace)) == 1
