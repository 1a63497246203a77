"""Options of the parts that a command starts: the command takes them and passes them on.

They are the parts' own settings, read from their classes; their help is that of the parts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from pydantic_settings import BaseSettings

from pando.settings.fields import fields
from pando.settings.load import Given, flag_of
from pando.settings.option import option
from pando.usage import StrictCommand, closest, did_you_mean

_BETWEEN = "__"  # a part's command and the setting, in the name of a parameter


@dataclass(frozen=True, slots=True)
class PassedPart:
    """
    Attributes:
        command: whose `--help` lists the options
        decided: settings that the command which starts the part chooses itself
    """

    command: str
    settings_class: type[BaseSettings]
    decided: frozenset[str]


def passed_options(parts: Sequence[PassedPart], own: Collection[str]) -> list[click.Option]:
    """Hidden options for all settings of the parts but the command's `own`.

    One that two parts have, or that is decided, is refused when it is given.
    """
    options: dict[str, click.Option] = {}
    for part in parts:
        for field in fields(part.settings_class):
            if field.is_secret or field.name in own or field.name in options:
                continue
            made = option(field, f"{part.command}{_BETWEEN}{field.name}", hidden=True)
            if problem := _problem(parts, part, field.name):
                made.callback = _refuse(problem)
            options[field.name] = made
    return list(options.values())


def passed_values(
    parts: Sequence[PassedPart], values: Mapping[str, object]
) -> dict[str, dict[str, Given]]:
    """What a command line gave for each part, by the part's command and the setting."""
    passed: dict[str, dict[str, Given]] = {part.command: {} for part in parts}
    for parameter, value in values.items():
        command, between, name = parameter.partition(_BETWEEN)
        if between:
            passed[command][name] = Given(value, flag_of(name))
    return passed


def words(name: str, value: object) -> list[str]:
    """A setting as a command line gives it."""
    match value:
        case bool():
            return [flag_of(name if value else f"no_{name}")]
        case tuple():
            return [word for one in value for word in (flag_of(name), str(one))]
        case _:
            return [flag_of(name), str(value)]


class TakingParts(StrictCommand):
    """A command that says of an unknown option where the known ones are listed."""

    def __init__(self, name: str, *, parts: Sequence[PassedPart], **arguments: Any) -> None:
        super().__init__(name, **arguments)
        self._parts = parts

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not self._parts:
                raise
            commands = [ctx.command_path, *(f"pando {part.command}" for part in self._parts)]
            name, known = error.option_name, error.possibilities or ()
            close = closest(name, known)
            meant = did_you_mean(name, known, self._whose(close) if close else "")
            listing = " and ".join(f"{command} --help" for command in commands[1:])
            message = (
                f"there is no option {name}{meant} See {commands[0]} --help; the options of"
                f" {listing} may be given here, too"
            )
            raise click.UsageError(message, ctx) from None

    def _whose(self, flag: str) -> str:
        for parameter in self.params:
            command, between, _ = (parameter.name or "").partition(_BETWEEN)
            if between and flag in (*parameter.opts, *parameter.secondary_opts):
                return f" of pando {command}"
        return ""


def _problem(parts: Sequence[PassedPart], part: PassedPart, name: str) -> str | None:
    having = [one for one in parts if name in one.settings_class.model_fields]
    if name in part.decided:
        return f"{flag_of(name)}: this command decides it itself for its {part.command}s"
    if len(having) > 1:
        whose = " and ".join(f"pando {one.command}" for one in having)
        prefixes = (one.settings_class.model_config.get("env_prefix", "") for one in having)
        variables = " or ".join(prefix + name.upper() for prefix in prefixes)
        return f"{flag_of(name)} is an option of {whose}: set the variable {variables} instead"
    return None


def _refuse(problem: str) -> Callable[[click.Context, click.Parameter, object], None]:
    def refuse(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        if value not in (None, ()):
            raise click.UsageError(problem, ctx)

    return refuse
