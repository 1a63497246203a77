"""Turns a settings class into a click command: one option a field, help from the field itself."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic_settings import BaseSettings

from pando import logs
from pando.settings.load import Given, SettingsError, flag_of, load

Settings = TypeVar("Settings", bound=BaseSettings)

LOG_FLAGS = "log_"  # the prefix that makes LogSettings.level the flag --log-level


def settings_command(
    name: str,
    settings_class: type[Settings],
    run: Callable[[Settings, logs.LogSettings], int],
) -> click.Command:
    """A command that loads the settings, configures logging and exits with what `run` returns.

    `run` may raise SettingsError too. The class's docstring is the help text.
    """

    def callback(config: Path | None, **values: object) -> None:
        flags = {n: Given(value, flag_of(n)) for n, value in values.items() if value is not None}
        log_flags = {n.removeprefix(LOG_FLAGS): flags.pop(n) for n in log_names if n in flags}
        try:
            log_settings = load(logs.LogSettings, log_flags)
            settings = load(settings_class, flags, config=config)
            logs.configure(log_settings)
            sys.exit(run(settings, log_settings))
        except SettingsError as error:
            raise click.UsageError(str(error)) from None

    log_names = [LOG_FLAGS + field for field in logs.LogSettings.model_fields]
    prefix = settings_class.model_config.get("env_prefix", "")
    config_option = click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="YAML file of the settings below, by their names: max_total_tokens: 4096",
    )
    return click.Command(
        name,
        callback=callback,
        params=[
            config_option,
            *_options(settings_class),
            *_options(logs.LogSettings, flag_prefix=LOG_FLAGS),
        ],
        help=settings_class.__doc__,
        epilog=f"Every option is also a variable ({prefix}<OPTION>, PANDO_LOG_<OPTION>)."
        " Flags come first, then variables, then the file.",
        context_settings={"max_content_width": 100},
    )


def _options(settings_class: type[BaseSettings], flag_prefix: str = "") -> list[click.Option]:
    """Options hand on plain strings: pydantic alone judges values, wherever they come from."""
    schema = settings_class.model_json_schema()
    options = []
    for name, field in schema["properties"].items():
        value_schema = _value_schema(field, schema.get("$defs", {}))
        flag = flag_of(flag_prefix + name)
        if value_schema["type"] == "boolean":
            declarations: list[str] = [f"{flag}/--no-{flag.removeprefix('--')}"]
            kind: dict[str, Any] = {"is_flag": True, "default": None}
        else:
            declarations = [flag]
            kind = {"type": str, "metavar": _metavar(value_schema)}
        required = name in schema.get("required", ())
        notes = "; ".join(_notes(value_schema, field, required))
        help_text = f"{field['description']} [{notes}]" if notes else field["description"]
        options.append(click.Option([*declarations, flag_prefix + name], help=help_text, **kind))
    return options


def _value_schema(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of the value itself: references resolved, the null of `X | None` left out."""
    if "$ref" in field:
        resolved: dict[str, Any] = definitions[field["$ref"].rpartition("/")[2]]
        return resolved
    if "anyOf" in field:
        (value,) = [option for option in field["anyOf"] if option.get("type") != "null"]
        return _value_schema(value, definitions)
    return field


def _metavar(value: dict[str, Any]) -> str:
    choices = value.get("enum", [value["const"]] if "const" in value else [])
    if choices:
        return f"[{'|'.join(choices)}]"
    return {"integer": "INTEGER", "number": "NUMBER", "string": "TEXT"}[value["type"]]


def _notes(value: dict[str, Any], field: dict[str, Any], required: bool) -> Iterator[str]:
    """Such as "default: 0.8" and "> 0, < 1". A default of None is in the description's words."""
    default = field.get("default")
    if required:
        yield "required"
    elif value["type"] == "boolean":
        yield f"default: {'on' if default else 'off'}"
    elif default is not None:
        yield f"default: {default}"
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = [f"{sign} {value[key]:g}" for key, sign in signs.items() if key in value]
    if limits:
        yield ", ".join(limits)
