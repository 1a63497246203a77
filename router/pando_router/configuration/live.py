"""The settings in effect, in one holder that everything reads.

Read `live.settings` at each use and do not keep the object: settings are frozen, and a reload
replaces it. Values computed from settings, such as a mapping by URL, are `derived`.
"""

from collections.abc import Callable
from time import time
from typing import Any, TypeVar

from pando_fleet.current import Current
from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings

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
        """What `make` computes from the settings, now and after each reload."""
        current = Current(make(self.settings))
        self._derived.append((current, make))
        return current

    def adopt(self, new: RouterSettings) -> list[str]:
        """Adopts all of `new` or nothing; returns the names of the settings that changed.

        Raises FixedSettingError.
        """
        old = self.settings
        if new.port == 0:  # any port; the chosen one matches
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
