"""`pando up` starts, ends, and refuses to start; afterwards no process is left."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import openai
import psutil
import pytest

from pando_router.api_keys.keyring import digest_of
from tests.e2e.conftest import MODEL
from tests.e2e.up_process import UpProcess
from tests.waiting import read_each, until

pytestmark = pytest.mark.e2e


def assert_nothing_is_left(up: UpProcess) -> None:
    until(lambda: not up.processes(), f"no process is left, but {up.processes()}")


async def test_ctrl_c_lets_running_requests_finish_and_leaves_nothing() -> None:
    with UpProcess("--workers", "1", "--drain-seconds", "60") as up:
        await asyncio.to_thread(up.wait_ready)
        assert up.redis_sockets()
        names = Counter(name for _, name in read_each(up.processes(), psutil.Process.name))
        assert names["valkey-server"] == 1  # otherwise the check below would miss one
        async with openai.AsyncOpenAI(base_url=f"{up.url}/v1", api_key="none") as client:
            stream = await client.completions.create(
                model=MODEL,
                prompt="Count:",
                max_tokens=200,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            chunks = aiter(stream)
            await anext(chunks)
            up.send(signal.SIGINT)
            reasons = [chunk.choices[0].finish_reason async for chunk in chunks]
        assert reasons[-1] == "length"
        assert await asyncio.to_thread(up.wait_end) == 0, up.output
        await asyncio.to_thread(assert_nothing_is_left, up)
        assert not up.redis_sockets()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """A fleet with options and a model of its own, which has no chat template."""
    plain = tmp_path_factory.mktemp("model") / "plain"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "models" / MODEL, plain)
    (plain / "chat_template.jinja").unlink()
    options = ("--max-running-requests", "7", "--no-radix-cache", "--policy", "round_robin")
    with UpProcess("--workers", "1", "--model", str(plain), *options) as up:
        yield up.wait_ready()


def test_options_of_workers_and_router_reach_them(own: UpProcess) -> None:
    [replica] = own.replicas().values()
    info = json.loads(own.get("/server_info", replica["url"]))
    assert info["engine"]["max_running_requests"] == 7
    assert {"--no-radix-cache"} < set(own.part("worker-0").cmdline())
    assert {"--policy", "round_robin"} < set(own.part("router").cmdline())


def test_a_model_without_a_chat_template_is_offered_as_one_that_completes(own: UpProcess) -> None:
    assert "/v1/completions" in own.welcome and "/chat" not in own.welcome
    [replica] = own.replicas().values()
    assert "/v1/chat/completions" not in replica["endpoints"]


def test_it_says_where_to_talk_to_the_model_and_where_to_see_the_fleet(up: UpProcess) -> None:
    for path, title in (("/chat", b"<title>Pando chat"), ("/dashboard", b"<title>Pando router")):
        assert up.url + path in up.welcome
        assert title in up.get(path)


def test_a_fleet_that_requires_keys_is_ready_and_starts_a_killed_worker_again(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"tenants: {{a: {{keys: [{{sha256: {digest_of('mine')}}}]}}}}")
    with UpProcess("--workers", "1", environment={"PANDO_ROUTER_API_KEYS": str(keys)}) as up:
        up.wait_ready()
        assert '-H "authorization: Bearer $KEY"' in up.welcome
        with pytest.raises(openai.AuthenticationError):
            ask(up, "none")
        assert ask(up, "mine")
        up.part("worker-0").kill()
        until(lambda: any("crashed" in line["event"] for line in up.log), "the crash is noticed")
        until(lambda: len([1 for line in up.log if "ready at" in line["event"]]) == 2, "it is back")
        assert up.process.poll() is None


def ask(up: UpProcess, key: str) -> str:
    client = openai.OpenAI(base_url=f"{up.url}/v1", api_key=key, max_retries=0)
    return client.completions.create(model=MODEL, prompt="Count:", max_tokens=4).choices[0].text


def test_two_fleets_in_one_redis_have_replicas_of_their_own_and_one_model_a_pool(
    valkey_url: str, tmp_path: Path
) -> None:
    with UpProcess("--workers", "1", "--redis", valkey_url) as first:
        first.wait_ready()
        other = tmp_path / "other"
        other.symlink_to(Path(__file__).parents[2] / "examples" / "models" / MODEL)
        with UpProcess("--redis", valkey_url, "--model", str(other)) as refused:
            assert refused.wait_end() == 1
            (line,) = refused.output.splitlines()
            assert "the pool 'default'" in line and "'pando-tiny'" in line and "--pool" in line
        mine = ("--workers", "1", "--model", str(other), "--pool", "mine")
        with UpProcess("--redis", valkey_url, *mine) as second:
            second.wait_ready()
            assert second.welcome.startswith("other is served")
            names = until(lambda: sorted(first.replicas()), "both are seen")
            assert len(names) == 2
            assert all(re.fullmatch(r"worker-0-[0-9a-f]{6}", name) for name in names)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM]
)
def test_a_signal_while_starting_leaves_nothing(number: signal.Signals) -> None:
    with UpProcess() as up:
        until(lambda: len(up.processes()) >= 5, "its parts are being started")
        up.send(number)
        assert up.wait_end() == 0, up.output
        assert_nothing_is_left(up)


def test_a_second_ctrl_c_does_not_wait() -> None:
    with UpProcess("--workers", "1", "--drain-seconds", "600") as up:
        worker = until(lambda: up.find_part("worker-0"), "the worker is being started")
        assert worker
        worker.suspend()  # it will not end on SIGTERM
        # Wait until it is stopped; before that, SIGTERM could still end it.
        until(lambda: worker.status() == psutil.STATUS_STOPPED, "the worker is suspended")
        up.send(signal.SIGINT)
        until(lambda: any("stopping" in line["event"] for line in up.log), "it is ending")
        up.send(signal.SIGINT)
        assert up.wait_end() == 0, up.output
        assert_nothing_is_left(up)


def test_signals_that_go_on_until_its_last_moment_change_nothing() -> None:
    with UpProcess("--workers", "1") as up:
        until(lambda: up.find_part("worker-0"), "the worker is being started")
        up.send(signal.SIGINT)
        until(lambda: any("stopping" in line["event"] for line in up.log), "it is ending")
        while up.process.poll() is None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                up.send(number)
        assert up.wait_end() == 0, up.output
        assert "Traceback" not in up.output
        assert "ignored" not in up.output
        assert_nothing_is_left(up)


def test_all_goes_with_it_when_it_is_killed() -> None:
    with UpProcess("--workers", "1") as up:
        up.wait_ready()
        up.send(signal.SIGKILL)
        up.wait_end()
        assert_nothing_is_left(up)
        until(lambda: not up.redis_sockets(), "its private directory is gone")


def test_a_directory_without_a_model_is_refused_in_one_line(tmp_path: Path) -> None:
    with UpProcess("--model", str(tmp_path)) as up:
        assert up.wait_end() == 1
        (line,) = up.output.splitlines()
        assert line.startswith(f"pando up: cannot serve {tmp_path}: ")
        assert_nothing_is_left(up)


def test_a_model_that_turns_out_broken_ends_it_with_the_reason(tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "examples" / "models" / MODEL
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    config = json.loads((broken / "config.json").read_text())
    config["intermediate_size"] += 8  # only the weights themselves show that this is wrong
    (broken / "config.json").write_text(json.dumps(config))
    with UpProcess("--workers", "1", "--model", str(broken)) as up:
        assert up.wait_end() == 1
        last_line = up.output.splitlines()[-1]
        assert re.match(r"pando up: worker-\d ended while starting \(exit code 1\): .", last_line)
        assert "model.safetensors" in last_line
        assert_nothing_is_left(up)


def test_a_model_that_nobody_has_is_said_once() -> None:
    with UpProcess("--model", "nobody/nothing", environment={"HF_HUB_OFFLINE": "1"}) as up:
        assert up.wait_end() == 1
        asked, said = up.output.splitlines()
        assert "looking for nobody/nothing" in asked
        assert said.startswith("pando up: cannot serve nobody/nothing: there is no directory")


def test_an_adapter_that_nobody_has_is_said_before_anything_starts() -> None:
    arguments = ("--lora-modules", "pirate=nobody/nothing")
    with UpProcess(*arguments, environment={"HF_HUB_OFFLINE": "1"}) as up:
        assert up.wait_end() == 1
        asked, said = up.output.splitlines()
        assert "looking for pirate=nobody/nothing" in asked
        assert re.match(
            r"pando up: cannot serve .*: adapter 'pirate' of lora_modules: there is no directory"
            r" 'nobody/nothing', and as a hub id it is not in the local cache",
            said,
        )


def test_a_signal_during_a_download_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:  # never answers
        endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        environment = {"HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1"}
        with UpProcess("--model", "nobody/nothing", environment=environment) as up:
            hub.settimeout(60)
            connection, _ = hub.accept()
            with connection:
                up.send(signal.SIGINT)
                assert up.wait_end() == 0
            assert_nothing_is_left(up)


def test_a_file_of_weights_that_was_cut_is_refused_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "models" / MODEL, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with UpProcess("--model", str(broken)) as up:
        assert up.wait_end() == 1
        (line,) = up.output.splitlines()
        assert re.match(r"pando up: cannot serve .*broken: cannot read .*model.safetensors", line)
        assert_nothing_is_left(up)


def test_a_port_in_use_is_refused_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with UpProcess("--port", str(port)) as up:
            assert up.wait_end() == 1
            (line,) = up.output.splitlines()
            assert line.startswith(f"pando up: cannot listen on 127.0.0.1 port {port}: ")
            assert_nothing_is_left(up)


def test_a_redis_that_does_not_answer_is_refused_in_one_line() -> None:
    with UpProcess("--redis", "redis://:hunter2@127.0.0.1:1/0") as up:
        assert up.wait_end() == 1
        (line,) = up.output.splitlines()
        assert line.startswith("pando up: cannot use Redis at redis://:***@127.0.0.1:1/0: ")


def test_a_terminal_shows_a_live_table_and_its_ctrl_c_ends_all() -> None:
    master, slave = pty.openpty()
    with UpProcess("--workers", "1", terminal=slave) as up:
        os.close(slave)
        os.set_blocking(master, False)
        screen = Screen(master)
        until(lambda: "is served at" in screen.text, "it is ready", 60)
        row = re.compile(r"worker-0 +ready +0 +0 +0 +0 +[\d,]+ +-")
        until(lambda: row.search(screen.text), "the table shows it ready")
        assert "KV cached" in screen.text
        assert '"event"' not in screen.text  # logs are for people
        os.write(master, b"\x03")
        until(lambda: (screen.text and up.process.poll()) is not None, "it has ended")
        assert up.wait_end() == 0
        assert_nothing_is_left(up)
    os.close(master)


class Screen:
    """Everything that a terminal has shown so far, without colours and cursor movements."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._raw = b""

    @property
    def text(self) -> str:
        try:
            while data := os.read(self._master, 65536):
                self._raw += data
        except OSError:  # nothing more for now, or the other side has closed
            pass
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._raw.decode(errors="replace"))
