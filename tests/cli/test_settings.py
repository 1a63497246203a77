"""How settings reach a component: flags over variables over the YAML file over defaults, with a
one-line error for anything wrong.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pando.main import main
from pando.settings.load import Given, SettingsError, load
from pando_router.configuration.settings import RouterSettings
from pando_worker.settings import WorkerSettings
from pando_worker.settings.compute import DType
from tests.waiting import PATIENCE_S

MODEL = {"model": Given("some/model", "--model")}

Capture = pytest.CaptureFixture[str]


def assert_refused(capsys: Capture, arguments: list[str], *fragments: str) -> None:
    """`pando ARGUMENTS` ends with exit code 2 and one line with the fragments on stderr."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    output = capsys.readouterr()
    assert end.value.code == 2, output.err
    assert output.out == ""
    assert len(output.err.splitlines()) == 1, output.err
    for fragment in fragments:
        assert fragment in output.err


def help_of(capsys: Capture, command: str) -> str:
    """The help text as one line, without its wrapping."""
    main([command, "--help"])
    return " ".join(capsys.readouterr().out.split())


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


def test_a_setting_twice_in_the_file_is_refused(capsys: Capture, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("port: 1\nhost: a\nport: 2\n")
    said = ("pando router: ", f"--config {config}: not YAML: 'port' occurs twice in line 3")
    assert_refused(capsys, ["router", "--config", str(config)], *said)


def test_an_empty_config_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("# nothing yet\n")
    assert load(RouterSettings, {}, {}, config) == RouterSettings()


def test_a_boolean_has_a_flag_for_each_of_its_values(capsys: Capture) -> None:
    assert "--radix-cache / --no-radix-cache" in help_of(capsys, "worker")
    assert_refused(capsys, ["worker", "--radix-cache=maybe", "--model", "m"], "--radix-cache")


def test_a_value_out_of_range_names_its_flag_and_the_range(capsys: Capture) -> None:
    arguments = ["worker", "--model", "m", "--port", "70000"]
    assert_refused(capsys, arguments, "--port", "70000", "it must be between 0 and 65535")


def test_a_value_that_does_not_parse_names_its_variable() -> None:
    with pytest.raises(SettingsError, match=r"PANDO_ROUTER_MAX_TRIES is 'several'.* integer"):
        load(RouterSettings, {}, {"PANDO_ROUTER_MAX_TRIES": "several"})


def test_a_bad_value_in_the_file_names_the_file(capsys: Capture, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("policy: fastest\n")
    arguments = ["router", "--config", str(config)]
    assert_refused(capsys, arguments, f"policy in {config}", "fastest", "cache_aware")


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pando", "router"],
        env={**os.environ, "PANDO_ROUTER_PORTS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 2
    message = "pando router: unknown variable PANDO_ROUTER_PORTS; did you mean PANDO_ROUTER_PORT?\n"
    assert result.stderr == message


def test_an_unknown_key_in_the_file_is_refused(capsys: Capture, tmp_path: Path) -> None:
    config = tmp_path / "router.yaml"
    config.write_text("polcy: random\n")
    arguments = ["router", "--config", str(config)]
    assert_refused(capsys, arguments, str(config), "polcy", "did you mean policy?")


@pytest.mark.parametrize("content", ["- a list\n", "port: [\n", "\xff"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    config = tmp_path / "router.yaml"
    config.write_text(content, encoding="latin-1")
    with pytest.raises(SettingsError) as refusal:
        load(RouterSettings, {}, {}, config)
    assert str(config) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert_refused(capsys, ["router", "--config", str(tmp_path / "none.yaml")], "none.yaml")


def test_an_unknown_flag_and_an_unknown_command_are_refused(capsys: Capture) -> None:
    assert_refused(capsys, ["worker", "--modle", "m"], "pando worker:", "--modle")
    assert_refused(capsys, ["wroker"], "wroker")


def test_a_missing_required_setting_says_how_to_give_it(capsys: Capture) -> None:
    assert_refused(capsys, ["worker"], "--model", "PANDO_WORKER_MODEL")


def test_settings_that_contradict_each_other_name_where_each_came_from() -> None:
    with pytest.raises(SettingsError) as refusal:
        load(
            WorkerSettings,
            {**MODEL, "chunked_prefill_size": Given("8", "--chunked-prefill-size")},
            {"PANDO_WORKER_PAGE_SIZE": "32"},
        )
    assert "--chunked-prefill-size" in str(refusal.value)
    assert "PANDO_WORKER_PAGE_SIZE" in str(refusal.value)


def test_a_password_in_a_bad_url_is_not_shown() -> None:
    redis = Given("redis://user:hunter2@host:1/0", "--port")
    with pytest.raises(SettingsError) as refusal:
        load(RouterSettings, {"port": redis}, {})
    assert "hunter2" not in str(refusal.value)
    assert "redis://user:***@host" in str(refusal.value)


def test_help_shows_defaults_ranges_units_and_choices(capsys: Capture) -> None:
    text = help_of(capsys, "worker")
    assert "in seconds [default: 30.0; >= 0]" in text
    assert "[default: 30000; >= 0, <= 65535]" in text
    assert "[decode-first|prefill-first]" in text
    assert "[required]" in text


def test_a_flag_may_be_given_several_times() -> None:
    urls = ("http://a:1", "http://b:2")
    given = load(RouterSettings, {"upstream": Given(urls, "--upstream")}, {})
    assert tuple(one.url for one in given.upstream) == urls
    listed = load(RouterSettings, {}, {"PANDO_ROUTER_UPSTREAM": "http://a:1, http://b:2"})
    assert listed.upstream == given.upstream


def test_a_secret_has_no_flag_and_is_in_no_error(capsys: Capture, tmp_path: Path) -> None:
    assert_refused(
        capsys, ["router", "--upstream-api-key=x"], "there is no option --upstream-api-key"
    )
    file = tmp_path / "router.yaml"
    for text in (
        "upstream_api_key: [sk-1]",
        "upstream: [{url: 'http://a', api_key: sk-1}]",
        "upstream: ['http://user:sk-1@a']",
    ):
        file.write_text(text)
        with pytest.raises(SettingsError) as refused:
            load(RouterSettings, {}, {}, file)
        assert "upstream" in str(refused.value)
        assert "sk-1" not in str(refused.value)
