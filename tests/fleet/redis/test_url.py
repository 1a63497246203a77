"""Redis URLs in settings: what passes can be connected to, and most need no redis-py for that."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pando_fleet.redis.client import connect
from pando_fleet.redis.url import readable
from pando_fleet.redis.url_form import is_plain, plausible

_PARTS = st.text("ab1:/@?,%[]#.-", max_size=12)


@given(st.sampled_from(["redis", "rediss", "unix"]), _PARTS, _PARTS)
@example("redis", "u:p@h,i:x", "/1")
@example("redis", "h", "/x")
@example("unix", "", "/run/redis.sock")
def test_what_is_called_plain_can_be_connected_to(scheme: str, host: str, path: str) -> None:
    url = f"{scheme}://{host}{path}"
    try:
        if not is_plain(plausible(url)):
            return
    except ValueError:
        return
    connect(url)


@pytest.mark.parametrize(
    "url", ["redis://h:6379/3", "redis://u:p%40@h", "rediss://h", "unix:///run/redis.sock"]
)
def test_common_urls_are_read_without_redis_py(url: str) -> None:
    code = f"import sys; from {readable.__module__} import readable; readable({url!r});"
    code += "sys.exit('redis' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "url",
    ["redis://h?timeout=long", "redis://h:port", "redis+sentinel://h:1", "redis+cluster://h/1"],
)
def test_what_cannot_be_connected_to_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"Redis URL|redis\+"):
        readable(url)
