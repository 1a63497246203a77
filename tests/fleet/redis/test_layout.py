"""Python and Lua agree on every constant, word, argument, operation and row, and refuse others."""

import itertools
import struct
from collections.abc import Sequence
from enum import StrEnum
from importlib.resources import files
from math import isfinite
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple
from redis import Redis

from pando_fleet.placement.placer import NoReplica
from pando_fleet.records.queues import Queued, Queues
from pando_fleet.redis import misfits
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout import calls, constants, rows
from pando_fleet.redis.layout.calls import OPERATIONS, Settle
from pando_fleet.redis.layout.constants import MarkKind
from pando_fleet.redis.layout.lua import LayoutError, expand, key_count, source_of
from pando_fleet.redis.layout.packed import Packed
from pando_fleet.redis.layout.parts import SCRIPTS
from pando_fleet.redis.scripts import Script
from pando_fleet.redis.wire import WireScript
from tests.examples import examples
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import POOL, World

CONSTANTS = {
    name: value for name, value in vars(constants).items() if isinstance(value, int | bytes)
}
WORDS = [
    word
    for kind in vars(constants).values()
    if isinstance(kind, type) and issubclass(kind, StrEnum)
    for word in kind
]
CALLS = [*SCRIPTS, *OPERATIONS, calls.Prompt]
PACKED = {name: each for name, each in vars(rows).items() if isinstance(each, Packed)}
ROWS = {name: each for name, each in PACKED.items() if each.version}

_VALUES = {
    float: st.floats(allow_nan=False, allow_infinity=False),
    int: st.integers(0, 2**53),
    bool: st.booleans(),
    str: st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
}
_given_values = settings(
    max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["valkey_server", "redis_server"])
def lua(request: pytest.FixtureRequest) -> Redis:
    server: RedisServer = request.getfixturevalue(request.param)
    return server.admin()


def evaluate(lua: Redis, script: str, *arguments: Any, keys: Sequence[str] = ()) -> Any:
    return lua.eval(expand(script), len(keys), *keys, *arguments)


def test_every_constant_and_word_is_the_same_in_lua(lua: Redis) -> None:
    assert CONSTANTS and WORDS
    for name, value in CONSTANTS.items():
        assert evaluate(lua, f"return ${name}") == value
    for word in WORDS:
        kind = type(word).__name__
        assert evaluate(lua, f"return ${kind}.{word.name}") == word.encode()
        assert evaluate(lua, f"return $words({kind})[ARGV[1]] and 1 or 0", word) == 1
        assert evaluate(lua, f"return $words({kind})['another'] and 1 or 0") == 0


def test_every_script_compiles_and_reads_its_own_call(lua: Redis) -> None:
    folder = files("pando_fleet") / "lua"
    for call, parts in SCRIPTS.items():
        lua.script_load(source_of(call))
        name = call.__name__
        script = (folder / f"{parts[-1]}.lua").read_text("utf-8")
        assert f"$names({name}) = $arguments({name})" in script


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_lua_finds_each_argument_under_its_name(lua: Redis, call: type) -> None:
    hints = get_type_hints(call, include_extras=True)
    count = key_count(call)
    assert all(hint == calls.Key for hint in list(hints.values())[:count])
    values = [
        number % 2
        if hint == calls.Flag
        else number
        if hint in (int, float, calls.Now)
        else f"v{number}"
        for number, hint in enumerate(hints.values(), 1000)
    ]
    expected = [str(value).encode() for value in values]
    for index, hint in enumerate(hints.values()):
        if hint == calls.Flag:
            expected[index] = b"true" if values[index] else b"false"
    name = call.__name__
    clock = (files("pando_fleet") / "lua/redis/clock.lua").read_text("utf-8")
    answer = ", ".join(f"tostring({field})" for field in hints)
    behind = "" if count else ", first"  # others get their start
    script = f"{clock}\nlocal first = 1\nlocal $names({name}) = $arguments({name}{behind})\n"
    keys, arguments = [str(key) for key in values[:count]], values[count:]
    assert evaluate(lua, f"{script}return {{ {answer} }}", *arguments, keys=keys) == expected
    assert evaluate(lua, f"return $length({name})") == len(arguments)


@pytest.mark.parametrize("name", PACKED)
@_given_values
@given(data=st.data())
def test_what_lua_packs_python_and_lua_unpack_again(
    lua: Redis, name: str, data: st.DataObject
) -> None:
    packed = PACKED[name]
    values = [data.draw(_VALUES[kind]) for kind in packed.fields.values()]
    row = pack(lua, name, values)
    if packed.version:
        read = f"$reader({name})\nlocal $names({name}) = unpack_{packed.name}(ARGV[1])\n"
        texts = [
            field if kind is str else f"string.format('%.17g', {field})"
            for field, kind in packed.fields.items()
        ]
        found = evaluate(lua, f"{read}return {{ {', '.join(texts)} }}", row)
        assert [
            text.decode() if kind is str else kind(text)
            for text, kind in zip(found, packed.fields.values(), strict=True)
        ] == values
    if name == "TERMS":  # only Lua unpacks it
        with pytest.raises(TypeError):
            packed.unpack(row)
        return
    if name in ("PART", "LOAD", "QUEUE", "ADAPTERS"):
        assert packed.pack_row(packed.kind(*values)) == row
        assert packed.unpack_row(row) == packed.kind(*values)
    if packed.is_versioned_in_front:
        row = row[1:]
    value, rest = packed.unpack(row + b"behind")
    assert [getattr(value, field) for field in packed.fields] == values
    has_version_behind = packed.version and not packed.is_versioned_in_front
    assert rest == (bytes([packed.version]) if has_version_behind else b"") + b"behind"
    for cut in range(min(len(row), 8)):
        with pytest.raises(ValueError):
            packed.unpack(row[:cut])


def pack(lua: Redis, name: str, values: list[Any]) -> bytes:
    """Pack like a script."""
    kinds = PACKED[name].fields.values()
    read = [
        f"ARGV[{index}] == '1'"
        if kind is bool
        else f"ARGV[{index}]"
        if kind is str
        else f"tonumber(ARGV[{index}])"
        for index, kind in enumerate(kinds, 1)
    ]
    arguments = [
        int(value) if kind is bool else repr(value) if kind is float else value
        for value, kind in zip(values, kinds, strict=True)
    ]
    script = f"local $names({name}) = {', '.join(read)}\nreturn $pack({name})"
    row: bytes = evaluate(lua, script, *arguments)
    return row


@pytest.mark.parametrize(
    ("name", "version"), [*itertools.product(ROWS, (9, 77, 255)), ("TERMS", 0), ("ADAPTERS", 0)]
)  # the previous release wrote a 0 at the others' end
def test_a_row_of_a_version_that_is_not_known_is_an_error(
    lua: Redis, name: str, version: int
) -> None:
    row = ROWS[name]
    values = [1.5 if kind is float else "x" for kind in row.fields.values()]
    packed = bytearray(pack(lua, name, values))
    assert version != row.version
    packed[0 if row.is_versioned_in_front else -1] = version
    with pytest.raises(Exception, match=f"{row.name}: version {version}, this release reads"):
        evaluate(lua, f"$reader({name})\nreturn unpack_{row.name}(ARGV[1])", bytes(packed))
    if name != "TERMS":
        with pytest.raises(ValueError, match="version"):
            row.unpack_row(bytes(packed))


@pytest.mark.parametrize(
    "text",
    ["$NOWHERE", "$Mode.ANOTHER", "$names(Nothing)", "$arguments(Nothing)", "$unheard(Touch)",
     "$pack(Touch)", "$operation(Place)", "$OPERATIONS"],
)  # fmt: skip
def test_what_the_layout_does_not_have_is_an_error_where_a_script_is_loaded(text: str) -> None:
    with pytest.raises(LayoutError, match="layout does not define"):
        expand(f"return {text}")


def settle_call(world: World) -> Settle:
    keys = PoolKeys(POOL)
    leases, parts, loads = keys.leases
    return Settle(leases, parts, loads, world.now_ms, keys.tree_prefix, keys.ledger_prefix)


@pytest.mark.parametrize("kind", OPERATIONS, ids=OPERATIONS.get)
async def test_every_operation_is_known_to_settle(world: World, kind: Any) -> None:
    settle = WireScript(world.wire, calls.Settle)
    hints = get_type_hints(kind)
    row = rows.PART.pack_row(rows.Part(1.0, 2.0, 1.0, "1:a"))
    operation = kind(
        *(
            (row if name == "part" else b"12345678") if hint is bytes else 1 if hint is int else "x"
            for name, hint in hints.items()
        )
    )
    await settle(settle_call(world), OPERATIONS[kind], *astuple(operation))


async def test_an_unknown_operation_is_refused_and_what_came_before_it_is_written(
    world: World,
) -> None:
    await world.beat("a")
    first, second = await world.place(), await world.place()
    settle = WireScript(world.wire, calls.Settle)
    with pytest.raises(FleetError, match="unknown operation: explode"):
        await settle(
            settle_call(world),
            "release",
            first.lease,
            "explode",
            second.lease,
            "release",
            second.lease,
        )
    assert (await world.terms())["a"].outstanding == 1  # the second one's, and all sums are right
    await world.release(second)
    assert not any([await world.redis.exists(key) for key in PoolKeys(POOL).leases])


async def test_an_unknown_mode_places_nothing(world: World) -> None:
    await world.beat("a")
    keys = PoolKeys(POOL)
    leases, parts, loads = keys.leases
    call: Any = calls.Place(
        replicas=keys.replicas,
        terms=keys.terms,
        adapters=keys.adapters,
        leases=leases,
        parts=parts,
        loads=loads,
        sessions=keys.sessions,
        now=world.now_ms,
        mode="hold",  # type: ignore[arg-type]
        tree_prefix=keys.tree_prefix,
    )
    prompt = calls.Prompt(b"", 10, 1, "lease", 1_000, 0, 0, 0, 0, 0, "", "", "", 0)
    with pytest.raises(FleetError, match="unknown mode of placement: hold"):
        await WireScript(world.wire, calls.Place)(call, *astuple(prompt))
    assert (await world.terms())["a"].outstanding == 0


async def test_an_unknown_kind_or_state_of_a_mark_is_refused(world: World) -> None:
    keys = PoolKeys(POOL)
    kind: Any = "melt"
    with pytest.raises(FleetError, match="unknown kind of mark: melt"):
        await Script(world.redis, calls.SetMark)(
            calls.SetMark(keys.marks, keys.terms, world.now_ms, kind, "a", 1, 1_000)
        )
    with pytest.raises(FleetError, match="unknown state of a mark: melt"):
        await Script(world.redis, calls.ReportMark)(
            calls.ReportMark(keys.marks, world.now_ms, MarkKind.WARM, "a", "r", 0, 0, kind, "")
        )
    assert not await world.redis.exists(keys.marks)


async def test_rows_that_the_release_before_wrote_are_read(world: World) -> None:
    await world.beat("a")
    leases, parts, loads = PoolKeys(POOL).leases
    await world.redis.zadd(leases, {"old": world.now_ms + 60_000})
    await world.redis.hset(parts, "old", struct.pack(">3d", 500.5, 600, 1) + b"1:a\0")
    await world.redis.hset(loads, "1:a", struct.pack(">4d", 500.5, 600, 1, 1))
    terms = (await world.terms())["a"]
    assert (terms.backlog_tokens, terms.outstanding, terms.queue) == (500, 1, 1.0)
    placed = await world.place()
    await WireScript(world.wire, calls.Settle)(settle_call(world), "release", "old")
    await world.release(placed)
    assert not await world.redis.exists(loads)
    queue = struct.pack(">4d", world.now_ms, 2, world.now_ms - 500, 70)
    await world.redis.hset(PoolKeys(POOL).queues, "old", queue)
    queues = Queues(world.redis, world.clock)
    await queues.report(POOL, "new", 1, 100, 5)
    assert await queues.read(POOL) == Queued(requests=3, waited_ms=500, tokens=75)


async def test_terms_of_another_version_are_counted_and_keep_only_their_replica_from_placement(
    world: World,
) -> None:
    await world.beat("a", "b")
    terms = PoolKeys(POOL).terms
    row = bytearray(await world.redis.hget(terms, "b") or b"")  # type: ignore[arg-type]
    row[0] += 1
    await world.redis.hset(terms, "b", bytes(row))
    before = misfits.counts().get("terms", 0)
    assert [r.beat.replica for r in await world.registry.replicas(POOL)] == ["a", "b"]
    assert misfits.counts().get("terms", 0) == before + 1
    assert list(await world.terms()) == ["a"]
    with pytest.raises(NoReplica):
        await world.place(only="b")


async def test_a_load_of_another_version_is_an_error_and_no_replica_looks_idle(
    world: World,
) -> None:
    await world.beat("a")
    await world.place()
    loads = PoolKeys(POOL).leases[2]
    row = await world.redis.hget(loads, "1:a")
    assert isinstance(row, bytes)
    assert row[-1] == rows.LOAD.version
    await world.redis.hset(loads, "1:a", row[:-1] + bytes([rows.LOAD.version + 1]))
    with pytest.raises(FleetError, match="load: version 2, this release reads 1"):
        await world.place()


@given(work=st.floats(0, 1e15), requests=st.integers(1, 10**9))
def test_rows_of_the_release_before_end_in_a_zero_byte(work: float, requests: int) -> None:
    """This distinguishes them from rows with a version."""
    assert isfinite(work)
    assert struct.pack(">4d", work, work, 1.0, requests)[-1] == 0
