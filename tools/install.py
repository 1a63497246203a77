"""Installs packages into this environment with uv, by pip's settings.

    python -m tools.install REQUIREMENT... [--no-deps] [-e FOLDER] [--target FOLDER]

uv takes a small part of pip's time, but reads neither `pip.conf` nor `PIP_...`, which say where the
packages of a machine come from. So they become uv's own here. Where pip has a setting that has no
counterpart, pip itself installs, and a line reports that.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

_VARIABLES = {  # of uv, and what is between the words of one; variables, as `ps` shows options
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
}
_OF_PIP_ALONE = {  # they change nothing of what is installed
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "no-input",
    "no-warn-script-location",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
}


def settings_of(listed: str) -> dict[str, str]:
    """pip's settings for `pip install`, from what `pip config list` prints.

    Variables come before a file's section `[install]`, and that before its `[global]`.
    """
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = ast.literal_eval(value)
    return {name: value for section in found.values() for name, value in section.items()}


def as_of_uv(settings: Mapping[str, str]) -> dict[str, str]:
    """uv's variables that mean what these settings of pip do.

    Raises:
        KeyError: with the name of a setting that uv does not have.
    """
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # the newest of all indexes, as pip
    for name, value in settings.items():
        if name in _VARIABLES:
            variable, between = _VARIABLES[name]
            variables[variable] = between.join(value.split())
        elif name not in _OF_PIP_ALONE:
            raise KeyError(name)
    return variables


def main(arguments: list[str]) -> int:
    pip = [sys.executable, "-m", "pip"]
    listed = subprocess.run(
        [*pip, "config", "list"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    try:
        variables = as_of_uv(settings_of(listed))
    except KeyError as error:
        print(f"pip installs, as uv has no setting like pip's {error}", file=sys.stderr)
        return subprocess.run([*pip, "install", "--quiet", *arguments]).returncode
    # All cores compile now, where else each process that imports a module first does, or all do.
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    command = [*uv, "--quiet", "--compile-bytecode", *arguments]
    return subprocess.run(command, env={**os.environ, **variables}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
