"""Binds calls to the recorded signatures of flashinfer's first and last supported version."""

import json
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class")

_KINDS = {
    kind.name: kind
    for kind in (
        Parameter.POSITIONAL_OR_KEYWORD,
        Parameter.VAR_POSITIONAL,
        Parameter.KEYWORD_ONLY,
        Parameter.VAR_KEYWORD,
    )
}


def _signature(recorded: list[tuple[str, str, bool]]) -> Signature:
    return Signature(
        [
            Parameter(name, _KINDS[kind], default=None if has_default else Parameter.empty)
            for name, kind, has_default in recorded
        ]
    )


# By version, then by full name; see `tools/record_flashinfer.py`.
SIGNATURES: dict[str, dict[str, Signature]] = {
    version: {name: _signature(recorded) for name, recorded in names.items()}
    for version, names in json.loads(
        Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    ).items()
}


def bound(name: str) -> Callable[[Function], Function]:
    """Each call must fit every version of `name`, with the meaning that it has for the decorated
    function: an argument without its name must be the parameter of that name in both."""

    def decorate(function: Function) -> Function:
        own = signature(function)

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            for version, names in SIGNATURES.items():
                try:
                    given = _named(names[name], args, kwargs)
                except TypeError as error:
                    raise AssertionError(f"{name} of flashinfer {version}: {error}") from error
                meant = _named(own, args, kwargs)
                for parameter, value in given.items():
                    assert meant.get(parameter) is value, (name, version, parameter)
            return function(*args, **kwargs)

        return cast(Function, checked)

    return decorate


def _named(of: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of their parameters, without `self` and those in `*args`."""
    found: dict[str, Any] = {}
    for name, value in of.bind(*args, **kwargs).arguments.items():
        kind = of.parameters[name].kind
        if kind is Parameter.VAR_KEYWORD:
            found |= value
        elif kind is not Parameter.VAR_POSITIONAL and name != "self":
            found[name] = value
    return found


def bound_class(name: str) -> Callable[[type[Class]], type[Class]]:
    """Binds the methods of a class that flashinfer's class `name` has."""

    def decorate(owner: type[Class]) -> type[Class]:
        for full_name in next(iter(SIGNATURES.values())):
            if full_name.rpartition(".")[0] == name:
                method = full_name.rpartition(".")[2]
                # The original, as a base class may have bound its own.
                function = getattr(owner, method)
                function = getattr(function, "__wrapped__", function)
                setattr(owner, method, bound(full_name)(function))
        return owner

    return decorate
