"""Turns a settings class into a click command: one option for each field, with the field's help."""

import sys
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import TypeVar

import click
from pydantic_settings import BaseSettings

from pando import logs
from pando.settings.fields import REPEATED, Field, fields
from pando.settings.load import Given, SettingsError, Sources, flag_of, load, spelling

Settings = TypeVar("Settings", bound=BaseSettings)

LOG_FLAGS = "log_"  # prefix of LogSettings' flags: level becomes --log-level


def settings_command(
    name: str,
    settings_class: type[Settings],
    run: Callable[[Settings, logs.LogSettings, Sources[Settings]], int],
) -> click.Command:
    """A command that loads the settings, configures logging and exits with the result of `run`.

    `run` may raise SettingsError, too. It gets the sources so that it can load the settings again.
    The docstring of the class is the help text.
    """

    def callback(config: Path | None, **values: object) -> None:
        given = ((n, value) for n, value in values.items() if value not in (None, ()))
        flags = {n: Given(value, origins[n]) for n, value in given}
        log_flags = {n.removeprefix(LOG_FLAGS): flags.pop(n) for n in log_names if n in flags}
        try:
            log_settings = load(logs.LogSettings, log_flags)
            sources = Sources(settings_class, flags, config)
            settings = sources.load()
            logs.configure(log_settings)
            sys.exit(run(settings, log_settings, sources))
        except SettingsError as error:
            raise click.UsageError(str(error)) from None

    log_names = [LOG_FLAGS + field for field in logs.LogSettings.model_fields]
    origins = {name: flag_of(name) for name in log_names}
    origins |= {name: spelling(settings_class, name) for name in settings_class.model_fields}
    shown = [field for field in fields(settings_class) if not field.is_secret]
    arguments = [field for field in shown if field.is_positional]
    text = cleandoc(settings_class.__doc__ or "")
    prefix = settings_class.model_config.get("env_prefix", "")
    config_option = click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="YAML file with the settings below, by name: max_total_tokens: 4096",
    )
    log_options = [_option(f, LOG_FLAGS + f.name) for f in fields(logs.LogSettings, LOG_FLAGS)]
    return click.Command(
        name,
        callback=callback,
        params=[
            config_option,
            *(_argument(field) for field in arguments),
            *(_option(field, field.name) for field in shown if not field.is_positional),
            *log_options,
        ],
        help="\n\n".join([text, *(f"{field.flag}: {field.description}." for field in arguments)]),
        epilog=f"Every option is also a variable ({prefix}<OPTION>, PANDO_LOG_<OPTION>)."
        " Flags override variables, and variables override the file.",
        context_settings={"max_content_width": 100},
    )


def _argument(field: Field) -> click.Argument:
    """Optional for click, since the value may come from a variable or the file."""
    several = field.type.endswith(REPEATED)
    metavar = f"{field.flag}..." if several else field.flag
    nargs = -1 if several else 1
    return click.Argument([field.name], type=str, metavar=metavar, nargs=nargs, required=False)


def _option(field: Field, parameter: str) -> click.Option:
    """Options pass plain strings on: only pydantic validates values, whatever their source."""
    default = f"default: {field.default}" if field.default else ""
    notes = "; ".join(filter(None, ["required" if field.required else default, field.limits]))
    text = f"{field.description} [{notes}]" if notes else field.description
    if field.is_switch:
        both = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
        return click.Option([both, parameter], is_flag=True, default=None, help=text)
    return click.Option(
        [field.flag, parameter],
        type=str,
        metavar=field.type.removesuffix(REPEATED),
        multiple=field.type.endswith(REPEATED),
        help=text,
    )
