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
from pando.settings.wording import problem_of
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
        raise SettingsError(f"--config {path}: cannot be read: {_reason(error)}") from None
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


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8"


def _explain(
    settings_class: type[BaseSettings], detail: ErrorDetails, given: Mapping[str, Given]
) -> str:
    if not detail["loc"]:  # the class's own check of several settings
        message = " ".join(detail["msg"].removeprefix("Value error, ").split())
        origins = [g.origin for name, g in given.items() if name in message]
        return f"{message} (from {', '.join(origins)})" if origins else message
    name = str(detail["loc"][0])
    if detail["type"] == "missing":
        variable = settings_class.model_config.get("env_prefix", "") + name.upper()
        flag = spelling(settings_class, name)
        return f"{flag} is required (or {variable}, or {name} in the --config file)"
    setting = given[name]
    field = settings_class.model_fields[name]
    origin, place = setting.origin, _place(detail["loc"][1:], setting.origin)
    problem = problem_of(detail, field)
    value = detail["input"] if len(detail["loc"]) > 1 else setting.value
    # A mapping, and a value under a name that is no setting, may be or hold a secret.
    is_secret = "Secret" in str(field.annotation) or isinstance(value, Mapping)
    if is_secret or detail["type"] in ("missing", "extra_forbidden"):
        return f"{origin}{place}: {problem}"
    return f"{origin} is {redact(_shown(value))!r}{place}: {problem}"


def _place(inner: tuple[int | str, ...], origin: str) -> str:
    """Where in the setting's value: of a flag, which stands for one element, only names."""
    if origin.startswith("--"):
        inner = tuple(part for part in inner if part != "url" and not isinstance(part, int))
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inner)
    return f" at {path.removeprefix('.')}" if path else ""


def _shown(value: object) -> str:
    """As it was given: a repeated flag's values are a tuple."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
