"""Which replicas keep what they compute, by the promises that they kept and broke."""

import pytest

from pando_router.core.promises import LIMIT, Promises


def test_a_replica_that_breaks_every_promise_keeps_nothing() -> None:
    promises = Promises()
    verdicts = [promises.broken("a") for _ in range(3 * LIMIT)]
    assert verdicts == [False] * (LIMIT - 1) + [True] * (2 * LIMIT + 1)


@pytest.mark.parametrize(("kept", "broken", "keeps"), [(1, 1, True), (1, 2, False), (2, 1, True)])
def test_a_replica_is_taken_to_keep_nothing_where_it_breaks_most_promises(
    kept: int, broken: int, keeps: bool
) -> None:
    promises = Promises()
    verdicts = []
    for _ in range(4 * LIMIT):
        verdicts += [promises.broken("a") for _ in range(broken)]
        for _ in range(kept):
            promises.kept("a")
    assert (True not in verdicts) is keeps


def test_a_replica_that_begins_to_keep_its_promises_is_believed_again() -> None:
    promises = Promises()
    for _ in range(3 * LIMIT):
        promises.broken("a")
    promises.kept("a")
    promises.kept("a")
    assert not promises.broken("a")


def test_records_of_others_and_of_those_that_are_gone_are_dropped() -> None:
    promises = Promises()
    for _ in range(LIMIT - 1):
        promises.broken("a")
        promises.broken("b")
    promises.keep_only({"b"})
    assert (promises.broken("a"), promises.broken("b")) == (False, True)
