"""The settings as they hold now: one object, changed in place when new ones are taken over.

Who reads `settings.x` for each request has the new value at once. Who made something of a value
when it was constructed registers with `follow` and makes it anew.
"""

from collections.abc import Callable
from time import time

from pando_router.metrics import Metrics
from pando_router.settings import RouterSettings

FIXED = frozenset(
    (
        "host",
        "port",
        "redis",
        "processes",
        "api_keys",
        "metrics_need_key",
        "hot_prefix_bytes",
        "explain_last",
        "migrate_memory_bytes",
        "otlp_endpoint",
        "trace_sample",
        "record",
        "record_file_bytes",
        "record_files",
        "record_secret",
    )
)
"""What a router is built around: these need a restart."""


class FixedSettingError(Exception):
    """Settings that cannot change while the router runs; the message names them."""


class Live:
    def __init__(self, settings: RouterSettings, metrics: Metrics) -> None:
        self.settings = settings
        self._metrics = metrics
        self._followers: list[Callable[[RouterSettings], None]] = []
        metrics.settings_loaded.set(time())

    def follow(self, adopt: Callable[[RouterSettings], None]) -> None:
        """Calls `adopt` with the settings after each change. It must not fail or wait: what could
        be wrong with a setting is for its validator to say."""
        self._followers.append(adopt)

    def adopt(self, new: RouterSettings) -> list[str]:
        """Takes over all of `new` or nothing; returns the names of what has changed.

        For requests it is one moment: nothing else runs meanwhile. Raises FixedSettingError.
        """
        settings = self.settings
        changed = [
            name
            for name in RouterSettings.model_fields
            if getattr(settings, name) != getattr(new, name)
            and (name, new.port) != ("port", 0)  # any port: the one that was picked is right
        ]
        if fixed := sorted(FIXED.intersection(changed)):
            raise FixedSettingError(f"{', '.join(fixed)} cannot change without a restart")
        for name in changed:
            setattr(settings, name, getattr(new, name))
        if changed:
            for adopt in self._followers:
                adopt(settings)
        self._metrics.settings_loaded.set(time())
        return changed

    def refused(self) -> None:
        """Settings were not taken over."""
        self._metrics.reload_failures.inc()
