"""Turns a settings class into a click command: one option for each field, with the field's help."""

import sys
from collections.abc import Callable, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import TypeVar

import click
from pydantic_settings import BaseSettings

from pando import logs
from pando.settings.fields import REPEATED, Field, fields
from pando.settings.load import Given, SettingsError, Sources, flag_of, load, spelling
from pando.settings.option import option
from pando.settings.passed import PassedPart, TakingParts, passed_options, passed_values

Settings = TypeVar("Settings", bound=BaseSettings)

LOG_FLAGS = "log_"  # prefix of LogSettings' flags: level becomes --log-level


def settings_command(
    name: str,
    settings_class: type[Settings],
    run: Callable[[Settings, logs.LogSettings, Sources[Settings]], int],
    parts: Sequence[PassedPart] = (),
) -> click.Command:
    """A command that loads the settings, configures logging and exits with the result of `run`.

    `run` may raise SettingsError, too. It gets the sources so that it can load the settings again.
    The docstring of the class is the help text. The command also takes the options of `parts`.
    """

    def callback(config: Path | None, **values: object) -> None:
        given = ((n, value) for n, value in values.items() if value not in (None, ()))
        taken = dict(given)
        passed = passed_values(parts, taken)
        flags = {n: Given(value, origins[n]) for n, value in taken.items() if n in origins}
        log_flags = {n.removeprefix(LOG_FLAGS): flags.pop(n) for n in log_names if n in flags}
        try:
            log_settings = load(logs.LogSettings, log_flags)
            sources = Sources(settings_class, flags, config, passed)
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
    log_options = [option(f, LOG_FLAGS + f.name) for f in fields(logs.LogSettings, LOG_FLAGS)]
    return TakingParts(
        name,
        parts=parts,
        callback=callback,
        params=[
            config_option,
            *(_argument(field) for field in arguments),
            *(option(field, field.name) for field in shown if not field.is_positional),
            *log_options,
            *passed_options(parts, settings_class.model_fields),
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
