"""Merges the sources of a settings class and reports errors in one line, each with its source.

Precedence: flags, then `PANDO_<COMPONENT>_…` variables, then the YAML file, then the defaults.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings

from pando.redact import redact
from pando.usage import did_you_mean
from pando_fleet import strict_yaml

Settings = TypeVar("Settings", bound=BaseSettings)


class SettingsError(Exception):
    """A setting is unknown, missing, malformed or out of range; the message is one line."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as given, and its source: "--port", "PANDO_WORKER_PORT", "port in w.yaml"."""

    value: object
    origin: str


Passed = Mapping[str, Mapping[str, Given]]
"""Settings for the parts that a command starts, by the part's command and the setting's name."""


def load(
    settings_class: type[Settings],
    flags: Mapping[str, Given],
    environment: Mapping[str, str] = os.environ,
    config: Path | None = None,
) -> Settings:
    """The settings, merged from all sources.

    Raises:
        SettingsError: names each bad setting with its source, its value and what would be right.
    """
    given = {
        **(_from_file(settings_class, config) if config else {}),
        **_from_environment(settings_class, environment),
        **flags,
    }
    try:
        return settings_class.model_validate({name: g.value for name, g in given.items()})
    except ValidationError as error:
        messages = [_explain(settings_class, detail, given) for detail in error.errors()]
        raise SettingsError("; ".join(messages)) from None


@dataclass(frozen=True, slots=True)
class Sources(Generic[Settings]):
    """The sources of settings, to load them repeatedly; can be sent to a child process.

    Attributes:
        passed: settings on the command line for the parts that the command starts
    """

    settings_class: type[Settings]
    flags: Mapping[str, Given]
    config: Path | None
    passed: Passed = field(default_factory=dict)

    def load(self) -> Settings:
        """The current settings. Raises SettingsError."""
        return load(self.settings_class, self.flags, config=self.config)


def flag_of(name: str) -> str:
    """The long option of a field: max_total_tokens → --max-total-tokens."""
    return "--" + name.replace("_", "-")


def spelling(settings_class: type[BaseSettings], name: str) -> str:
    """A setting's name on the command line: --max-total-tokens, or TRACE if it is positional."""
    return name.upper() if is_positional(settings_class, name) else flag_of(name)


def is_positional(settings_class: type[BaseSettings], name: str) -> bool:
    """Whether it is a positional argument; its class marks that in json_schema_extra."""
    extra = settings_class.model_fields[name].json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("positional"))


def _from_environment(
    settings_class: type[BaseSettings], environment: Mapping[str, str]
) -> dict[str, Given]:
    prefix = settings_class.model_config.get("env_prefix", "")
    given: dict[str, Given] = {}
    for variable, value in environment.items():
        if not variable.startswith(prefix):
            continue
        name = variable.removeprefix(prefix).lower()
        if name not in settings_class.model_fields:
            known = [prefix + name.upper() for name in settings_class.model_fields]
            hint = did_you_mean(variable, known)
            raise SettingsError(f"unknown variable {variable}{hint}")
        given[name] = Given(value, variable)
    return given


def _from_file(settings_class: type[BaseSettings], path: Path) -> dict[str, Given]:
    try:
        content = strict_yaml.load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"--config {path}: not YAML: {strict_yaml.problem_of(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"--config {path}: must be a mapping of settings to values")
    for name in content:
        if name not in settings_class.model_fields:
            hint = did_you_mean(str(name), settings_class.model_fields)
            raise SettingsError(f"--config {path}: unknown setting {name}{hint}")
    return {name: Given(value, f"{name} in {path}") for name, value in content.items()}


def _explain(
    settings_class: type[BaseSettings], detail: ErrorDetails, given: Mapping[str, Given]
) -> str:
    message = _one_line(detail["msg"].removeprefix("Value error, "))
    if not detail["loc"]:  # the class's own check of several settings
        origins = [g.origin for name, g in given.items() if name in message]
        return f"{message} (from {', '.join(origins)})" if origins else message
    name = str(detail["loc"][0])
    if detail["type"] == "missing":
        variable = settings_class.model_config.get("env_prefix", "") + name.upper()
        flag = spelling(settings_class, name)
        return f"{flag} is required (or {variable}, or {name} in the --config file)"
    setting = given[name]
    problem = f"{message[0].lower()}{message[1:]}"
    if len(detail["loc"]) > 1:  # the whole value may contain secrets
        part = f"{setting.origin}, at {'.'.join(map(str, detail['loc'][1:]))}"
        wrong = f" is {redact(str(detail['input']))!r}" if detail["type"] == "literal_error" else ""
        return f"{part}{wrong}: {problem}"
    if "Secret" in str(settings_class.model_fields[name].annotation):
        return f"{setting.origin}: {problem}"
    return f"{setting.origin} is {redact(str(setting.value))!r}: {problem}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
