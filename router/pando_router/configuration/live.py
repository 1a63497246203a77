"""The settings that hold now: one holder that everybody reads.

Read `live.settings` at each use and keep nothing of it: settings are frozen, and a reload puts
another object here. What is made of settings, such as a mapping by URL, is `derived`.
"""

from collections.abc import Callable
from time import time
from typing import Any, TypeVar

from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings
from pando_router.current import Current

T = TypeVar("T")


class FixedSettingError(Exception):
    """Settings that cannot change while the router runs; the message names them."""


class Live:
    """`loaded_at` is Unix time."""

    __slots__ = ("_derived", "loaded_at", "settings")

    def __init__(self, settings: RouterSettings) -> None:
        self.settings = settings
        self.loaded_at = time()
        self._derived: list[tuple[Current[Any], Callable[[RouterSettings], Any]]] = []

    def derived(self, make: Callable[[RouterSettings], T]) -> Current[T]:
        """What `make` makes of the settings, now and at each reload."""
        current = Current(make(self.settings))
        self._derived.append((current, make))
        return current

    def adopt(self, new: RouterSettings) -> list[str]:
        """Takes over all of `new` or nothing; returns the names of what has changed.

        Raises FixedSettingError.
        """
        old = self.settings
        if new.port == 0:  # any port: the one that was picked is right
            new = new.model_copy(update={"port": old.port})
        fields = RouterSettings.model_fields
        changed = [name for name in fields if getattr(old, name) != getattr(new, name)]
        if fixed := sorted(needing_restart(RouterSettings).intersection(changed)):
            raise FixedSettingError(f"{', '.join(fixed)} cannot change without a restart")
        if changed:
            made = [make(new) for _, make in self._derived]
            self.settings = new
            for (current, _), now in zip(self._derived, made, strict=True):
                current.now = now
        self.loaded_at = time()
        return changed
