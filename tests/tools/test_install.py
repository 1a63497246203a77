"""What `make install` installs is chosen by pip's own settings."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

NAME = "pando-test-package"


def wheel(folder: Path, version: str) -> None:
    folder.mkdir(exist_ok=True)
    stem = f"pando_test_package-{version}"
    with ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        about = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n"
        file.writestr("pando_test_package.py", f"VERSION = {version!r}\n")
        file.writestr(f"{stem}.dist-info/METADATA", about)
        file.writestr(
            f"{stem}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{stem}.dist-info/RECORD", "")


def installed(tmp_path: Path, configuration: str, **variables: str) -> tuple[str, str]:
    """The module that is there afterwards, and what was said."""
    file, target = tmp_path / "pip.conf", tmp_path / "target"
    file.write_text(configuration, encoding="utf-8")
    unset = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, "-m", "tools.install", "--target", str(target), NAME],
        env={**unset, "PIP_CONFIG_FILE": str(file), "UV_OFFLINE": "1", **variables},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return (target / "pando_test_package.py").read_text(encoding="utf-8"), done.stderr


@pytest.mark.parametrize("setting", ["", "only-binary = :all:\n"], ids=["uv", "pip"])
def test_the_version_is_the_newest_that_pips_settings_allow(tmp_path: Path, setting: str) -> None:
    """Where uv has no such setting, pip installs the same, and that is said."""
    for version in ("1.0", "2.0"):
        wheel(tmp_path / "one", version)
    wheel(tmp_path / "other", "3.0")
    (tmp_path / "constraints.txt").write_text(f"{NAME}<3\n", encoding="utf-8")
    configuration = (
        f"[global]\nindex-url = {(tmp_path / 'none').as_uri()}\n{setting}"
        f"constraint = {tmp_path}/constraints.txt\nfind-links = {tmp_path}/one\n"
        "[list]\nformat = freeze\n"
    )
    module, said = installed(
        tmp_path, configuration, PIP_FIND_LINKS=f"{tmp_path}/one {tmp_path}/other"
    )
    assert module == "VERSION = '2.0'\n"
    assert ("pip installs, as uv has no setting like pip's 'only-binary'" in said) == bool(setting)
