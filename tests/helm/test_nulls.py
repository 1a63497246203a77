"""A null in a pool's security settings reaches the pool, and no other null is accepted there."""

import pytest
from helm_python import HelmValuesError

from tests.helm.chart import declared_pools, render


def test_openshift_may_choose_the_uid() -> None:
    template = {"podSecurityContext": {"runAsUser": None, "fsGroup": None}}
    found = declared_pools(render({"pools": {"other": {"model": "m", "template": template}}}))
    (other,) = (pool for pool in found if pool["metadata"]["name"] == "other")
    assert other["spec"]["template"]["podSecurityContext"] == {"runAsUser": None, "fsGroup": None}


def test_another_null_is_refused() -> None:
    with pytest.raises(HelmValuesError):
        render({"pools": {"other": {"model": "m", "tensorParallelSize": [None]}}})
