"""`pando up` takes its workers' and its router's own options and passes them on."""

import pytest

from pando.settings.load import Given
from pando.up.plan import PARTS, UpPlan
from pando_router.configuration.settings import RouterSettings
from pando_worker.settings import WorkerSettings
from tests.cli.test_settings import Capture, assert_refused


def plan(
    worker: dict[str, object] | None = None, router: dict[str, object] | None = None
) -> UpPlan:
    def given(values: dict[str, object] | None) -> dict[str, Given]:
        return {name: Given(value, f"--{name}") for name, value in (values or {}).items()}

    return UpPlan(
        model="m",
        workers=2,
        host="127.0.0.1",
        port=8000,
        redis=None,
        drain_seconds=1,
        log_level="info",
        worker=given(worker),
        router=given(router),
    )


def test_each_worker_and_the_router_get_their_own() -> None:
    made = plan(
        {"page_size": "8", "radix_cache": False, "threads": "3"},
        {"policy": "random", "upstream": ("http://a", "http://b"), "allow_policy_header": True},
    )
    for worker in made.worker_commands("redis://r"):
        line = " ".join(worker.arguments)
        assert "--page-size 8" in line and "--no-radix-cache" in line and "--threads 3" in line
        assert "--policy" not in line
    line = " ".join(made.router_command("redis://r", "key").arguments)
    assert "--policy random" in line and "--allow-policy-header" in line
    assert "--upstream http://a --upstream http://b" in line and "--page-size" not in line


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--page-siz", "8"], ["did you mean --page-size of pando worker?", "pando router --help"]),
        (["--polic", "x"], ["did you mean --policy of pando router?"]),
        (["--nothing-like-it"], ["there is no option --nothing-like-it. See pando up --help"]),
        (["--page-size", "1000"], ["--page-size is '1000'", "it must be between 1 and 256"]),
        (["--policy", "fastest"], ["--policy is 'fastest'", "cache_aware"]),
        (
            ["--write-timeout", "3"],
            ["of pando worker and pando router", "PANDO_WORKER_WRITE_TIMEOUT or PANDO_ROUTER_"],
        ),
        (["--replica", "x"], ["decides it itself for its workers"]),
        (["--leave-seconds", "3"], ["decides it itself for its routers"]),
    ],
)
def test_what_cannot_be_passed_on_is_refused_in_one_line(
    capsys: Capture, arguments: list[str], fragments: list[str]
) -> None:
    assert_refused(capsys, ["up", *arguments], "pando up: ", *fragments)


def test_every_setting_of_a_part_is_taken_decided_or_refused_by_name(capsys: Capture) -> None:
    """So a new setting needs no second list."""
    both = WorkerSettings.model_fields.keys() & RouterSettings.model_fields.keys()
    own = {"model", "host", "port", "redis", "drain_seconds"}
    for name in both - own:
        flag = "--" + name.replace("_", "-")
        assert_refused(capsys, ["up", flag, "1"], f"{flag} is an option of pando worker and")
    for part in PARTS:
        assert part.decided < part.settings_class.model_fields.keys()
