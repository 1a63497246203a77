"""The `pando` command as a whole: what it imports, and how quickly it answers."""

import subprocess
import sys


def modules_after(arguments: list[str]) -> set[str]:
    """The modules that are loaded once `pando ARGUMENTS` has ended."""
    script = (
        "import sys\n"
        "from pando.main import main\n"
        f"sys.argv = ['pando', *{arguments!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('\\nMODULES', *sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(result.stdout.rpartition("MODULES")[2].split())


def test_the_list_of_commands_is_shown_without_loading_any() -> None:
    loaded = modules_after(["--help"])
    assert not loaded & {"torch", "transformers", "numpy", "pydantic", "fastapi", "redis", "rich"}


def test_the_router_needs_neither_torch_nor_numpy_nor_transformers() -> None:
    script = "import sys, pando_router.serve; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(result.stdout.split()) & {"torch", "transformers", "numpy"}


def test_help_of_every_command_works_without_torch() -> None:
    for command in ["up", "demo", "worker", "router", "version"]:
        loaded = modules_after([command, "--help"])
        assert "click" in loaded
        assert not loaded & {"torch", "transformers", "numpy"}, command
