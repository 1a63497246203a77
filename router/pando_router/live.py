"""The settings that hold now: one holder that everybody reads.

Read `live.settings` at each use and keep nothing of it: settings are frozen, and a reload puts
another object here. What is made of settings, such as a mapping by URL, is a `Derived`.
"""

from collections.abc import Callable
from time import time
from typing import Generic, TypeVar

from pando_router.setting_types import needing_restart
from pando_router.settings import RouterSettings

T = TypeVar("T")


class FixedSettingError(Exception):
    """Settings that cannot change while the router runs; the message names them."""


class Live:
    """`loaded_at` is Unix time."""

    __slots__ = ("loaded_at", "settings")

    def __init__(self, settings: RouterSettings) -> None:
        self.settings = settings
        self.loaded_at = time()

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
            self.settings = new
        self.loaded_at = time()
        return changed


class Derived(Generic[T]):
    """What `make` makes of the settings; made anew where they have changed since it was asked."""

    __slots__ = ("_live", "_made", "_make", "_settings")

    def __init__(self, live: Live, make: Callable[[RouterSettings], T]) -> None:
        self._live = live
        self._make = make
        self._settings = live.settings
        self._made = make(live.settings)

    def __call__(self) -> T:
        settings = self._live.settings
        if settings is not self._settings:
            self._settings, self._made = settings, self._make(settings)
        return self._made
