"""How settings reach a component: flags over variables over the YAML file over defaults, and one
clear line for whatever is wrong. Most of it through the real `pando` command.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pando.settings.load import Given, SettingsError, load
from pando_router.settings import RouterSettings
from pando_worker.settings import DType, WorkerSettings

MODEL = {"model": Given("some/model", "--model")}


def pando(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pando", *arguments],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_refused(result: subprocess.CompletedProcess[str], *fragments: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for fragment in fragments:
        assert fragment in result.stderr


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    config = tmp_path / "worker.yaml"
    config.write_text("page_size: 8\nmax_total_tokens: 4096\ndtype: bfloat16\n")
    variables = {"PANDO_WORKER_PAGE_SIZE": "32", "PANDO_WORKER_MAX_TOTAL_TOKENS": "8192"}
    flags = {**MODEL, "page_size": Given("64", "--page-size")}

    settings = load(WorkerSettings, flags, variables, config)

    assert settings.page_size == 64
    assert settings.max_total_tokens == 8192
    assert settings.dtype is DType.BFLOAT16
    assert settings.max_running_requests == 256


def test_an_empty_config_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("# nothing yet\n")
    assert load(RouterSettings, {}, {}, config) == RouterSettings()


def test_a_boolean_has_a_flag_for_each_of_its_values() -> None:
    result = pando("worker", "--help")
    assert "--radix-cache / --no-radix-cache" in result.stdout
    assert_refused(pando("worker", "--radix-cache=maybe", "--model", "m"), "--radix-cache")


def test_a_value_out_of_range_names_its_flag_and_the_range() -> None:
    result = pando("worker", "--model", "m", "--port", "70000")
    assert_refused(result, "pando worker:", "--port", "70000", "less than or equal to 65535")


def test_a_value_that_does_not_parse_names_its_variable() -> None:
    result = pando("router", environment={"PANDO_ROUTER_MAX_TRIES": "several"})
    assert_refused(result, "PANDO_ROUTER_MAX_TRIES", "several", "valid integer")


def test_a_bad_value_in_the_file_names_the_file(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("policy: fastest\n")
    result = pando("router", "--config", str(config))
    assert_refused(result, f"policy in {config}", "fastest", "cache_aware")


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    result = pando("router", environment={"PANDO_ROUTER_PORTS": "1"})
    assert_refused(result, "PANDO_ROUTER_PORTS", "did you mean PANDO_ROUTER_PORT?")


def test_an_unknown_key_in_the_file_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("polcy: random\n")
    result = pando("router", "--config", str(config))
    assert_refused(result, str(config), "polcy", "did you mean policy?")


@pytest.mark.parametrize("content", ["- a list\n", "port: [\n", "\xff"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    config = tmp_path / "router.yaml"
    config.write_text(content, encoding="latin-1")
    with pytest.raises(SettingsError) as refusal:
        load(RouterSettings, {}, {}, config)
    assert str(config) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert_refused(pando("router", "--config", str(tmp_path / "none.yaml")), "none.yaml")


def test_an_unknown_flag_and_an_unknown_command_are_refused() -> None:
    assert_refused(pando("worker", "--modle", "m"), "pando worker:", "--modle")
    assert_refused(pando("wroker"), "wroker")


def test_a_missing_required_setting_says_how_to_give_it() -> None:
    assert_refused(pando("worker"), "--model", "PANDO_WORKER_MODEL")


def test_settings_that_contradict_each_other_name_where_each_came_from() -> None:
    with pytest.raises(SettingsError) as refusal:
        load(
            WorkerSettings,
            {**MODEL, "max_prefill_tokens": Given("8", "--max-prefill-tokens")},
            {"PANDO_WORKER_PAGE_SIZE": "32"},
        )
    assert "--max-prefill-tokens" in str(refusal.value)
    assert "PANDO_WORKER_PAGE_SIZE" in str(refusal.value)


def test_a_password_in_a_bad_url_is_not_shown() -> None:
    redis = Given("redis://user:hunter2@host:1/0", "--redis")
    with pytest.raises(SettingsError) as refusal:
        load(RouterSettings, {"port": redis}, {})
    assert "hunter2" not in str(refusal.value)
    assert "redis://user:***@host" in str(refusal.value)


def test_help_shows_defaults_ranges_units_and_choices() -> None:
    text = " ".join(pando("worker", "--help").stdout.split())
    assert "in GiB [default: 2.0; > 0]" in text
    assert "[default: 30000; >= 0, <= 65535]" in text
    assert "[lpm|fcfs]" in text
    assert "[required]" in text
