"""The operator's metrics of pools that no longer exist are gone, so their number is bounded."""

from pando_operator.metrics import Metrics


def test_a_deleted_pool_leaves_no_line() -> None:
    metrics = Metrics()

    def lines() -> list[str]:
        return metrics.render().decode().splitlines()

    empty = lines()
    for pool in ("a", "b"):
        metrics.reconciles.labels("n", pool, "ok").inc()
        metrics.decisions.labels("n", pool, "up").inc()
        metrics.actions.labels("n", pool, "SetGate").inc()
        metrics.start_seconds.labels("n", pool).observe(3)
        metrics.replicas.labels("n", pool, "ready").set(1)
        metrics.pressure.labels("n", pool).set(0.5)
    metrics.forget("n", "a")
    assert [line for line in lines() if 'pool="a"' in line] == []
    assert [line for line in lines() if 'pool="b"' in line]
    metrics.forget_pools()
    assert lines() == empty
