"""The switch of all routers' recordings, and the secret that they share."""

from pando_fleet.records.recording import RecordingSwitch, RecordingSwitches
from pando_fleet.redis.client import connect
from pando_fleet.redis.keys import RECORDING


async def test_the_first_secret_is_that_of_all_and_the_last_switch_wins(redis_url: str) -> None:
    redis = connect(redis_url)
    switches = RecordingSwitches(redis)
    first, second = (RecordingSwitch(secret=secret) for secret in (b"first", b"\xff\x00second"))
    assert await switches.read(otherwise=second) == second
    assert await switches.read(otherwise=first) == second
    await switches.put(RecordingSwitch(on=True, secret=second.secret))
    assert await switches.read(otherwise=first) == RecordingSwitch(
        on=True, secret=b"\xff\x00second"
    )
    await redis.aclose()


async def test_what_is_no_switch_is_replaced(redis_url: str) -> None:
    redis = connect(redis_url)
    switches, known = RecordingSwitches(redis), RecordingSwitch(on=False, secret=b"known")
    for wrong in ("{", '{"on": 1}', "[]"):
        await redis.set(RECORDING, wrong)
        assert await switches.read(otherwise=known) == known
        assert await switches.read(otherwise=RecordingSwitch(secret=b"other")) == known
    assert "known" not in repr(known)
    await redis.aclose()
