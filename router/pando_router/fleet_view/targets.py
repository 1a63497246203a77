"""From a fleet's members to its targets: one for each pool and model, or adapter, that they
serve."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from pando_fleet.registry.replica import Heartbeat
from pando_router.fleet_view.snapshot import BYTES_PER_TOKEN, Member, Target


def targets_by_name(
    pools: Mapping[str, tuple[Member, ...]],
    names: Callable[[Heartbeat], dict[str, str]],
) -> dict[str, tuple[Target, ...]]:
    """The targets by each of the replicas' `names`, which have adapters' keys: one per pool and
    model."""
    found: dict[str, list[Target]] = {}
    for pool, members in pools.items():
        keys = [names(member.beat) for member in members]
        by_model: dict[str, list[int]] = {}  # the members' numbers
        for number, member in enumerate(members):
            by_model.setdefault(member.beat.model, []).append(number)
        for model, numbers in sorted(by_model.items()):
            alike: dict[tuple[int, ...], Target] = {}  # hundreds of adapters have few sets
            for name, serving, key in _served(numbers, keys):
                if (base := alike.get(serving)) is None:
                    base = alike[serving] = _target(pool, model, members, serving)
                target = base if name == model else _adapted(base, name, key)
                found.setdefault(name, []).append(target)
    return {name: tuple(targets) for name, targets in found.items()}


def _served(
    numbers: Sequence[int], keys: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Each name, by name, with the members of `numbers` that serve it, and the key that most of
    them have: while a name's weights are replaced there are two."""
    first = keys[numbers[0]]
    if all(keys[number] == first for number in numbers):  # the usual case, and many times as fast
        every = tuple(numbers)
        for name, key in sorted(first.items()):
            yield name, every, key
        return
    serving: dict[str, dict[int, str]] = {}
    for number in numbers:
        for name, key in keys[number].items():
            serving.setdefault(name, {})[number] = key
    for name, by_number in sorted(serving.items()):
        counts = Counter(by_number.values()).items()
        yield name, tuple(by_number), max(counts, key=lambda each: (each[1], each[0]))[0]


def _adapted(base: Target, name: str, key: str) -> Target:
    """The target of an adapter that the same members serve; `replace` takes twice as long."""
    return Target(
        base.pool,
        base.model,
        name,
        key,
        base.members,
        base.trusted,
        base.foreign,
        base.bytes_per_token,
        base.image_rule,
        (name,) if base.narrowed else (),
    )


def _target(pool: str, model: str, members: tuple[Member, ...], serving: Collection[int]) -> Target:
    """The target of the `serving` members, by their numbers; `narrowed` if these are not all of the
    model."""
    chosen = tuple(members[number] for number in serving)
    by_all = len(chosen) == sum(member.beat.model == model for member in members)
    return Target(
        pool=pool,
        model=model,
        adapter="",
        adapter_key="",
        members=chosen,
        trusted=tuple(member for member in chosen if member.trusted),
        foreign=tuple(m.beat.replica for n, m in enumerate(members) if n not in serving),
        bytes_per_token=fmean(member.beat.bytes_per_token for member in chosen),
        image_rule=next(filter(None, (m.beat.image_rule for m in chosen)), None),
        narrowed=() if by_all else (model,),
    )


def mark_expected(
    expected: Mapping[str, tuple[Sequence[str], float]],
    models: dict[str, tuple[Target, ...]],
    adapters: dict[str, tuple[Target, ...]],
) -> None:
    """Marks the targets of expected pools, and adds those that no replica serves now."""
    for pool, (names, _) in expected.items():
        for name in names:
            found = adapters if name in adapters and name not in models else models
            targets = found.get(name, ())
            marked = tuple(
                replace(target, expected=True) if target.pool == pool else target
                for target in targets
            )
            if all(target.pool != pool for target in targets):
                asleep = Target(pool, name, "", "", (), (), (), BYTES_PER_TOKEN, expected=True)
                marked = (*targets, asleep)
            found[name] = marked
