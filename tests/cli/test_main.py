"""The whole `pando` command: its imports, so that it is quick and needs no torch."""

import subprocess
import sys

from tests.waiting import PATIENCE_S

HEAVY = {"torch", "transformers", "numpy"}


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


def test_help_of_every_command_is_shown_without_torch() -> None:
    script = """
from pando.main import COMMANDS, group
for command in COMMANDS:
    if command != "sim":
        group.main([command, "--help"], standalone_mode=False)
"""
    loaded = modules_after(script)
    assert "pando_worker.settings" in loaded
    assert not loaded & HEAVY


def test_help_of_the_simulator_loads_what_it_simulates_but_no_torch() -> None:
    loaded = modules_after(
        "from pando.main import group; group.main(['sim', '--help'], standalone_mode=False)"
    )
    assert "pando_sim.policies.smg" in loaded
    assert not loaded & {"torch", "transformers"}
