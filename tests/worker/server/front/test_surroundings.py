"""Workers on unusual systems: users without a name, folders that cannot be used."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import pytest

from pando_worker.cpu.build import find_compiler
from pando_worker.cpu.prebuilt import find_prebuilt
from pando_worker.server.front.startup import CannotStartError
from pando_worker.server.process.socket_folder import PREFIX, socket_folder
from tests.worker.server.process.worker_process import MODEL_NAME, WorkerProcess

# No user has this id. The capability lets the process read Python, wherever it is installed, and
# write nothing.
NOBODY = (
    *("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)


@pytest.fixture
def nobody() -> Sequence[str]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be another user, by setpriv")
    return NOBODY


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="w") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


async def answers(worker: WorkerProcess) -> bool:
    body = {"model": MODEL_NAME, "prompt": "x", "max_tokens": 3}
    async with (
        aiohttp.ClientSession(worker.url) as http,
        http.post("/v1/completions", json=body) as answer,
    ):
        return answer.status == 200


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("home", "ranks"),
    [({}, 2), ({"HOME": "/"}, 1)],
    ids=["no home", "a home that is not its own"],
)
async def test_a_user_without_a_name_or_a_home_serves(
    nobody: Sequence[str], home: dict[str, str], ranks: int
) -> None:
    env = {"PATH": os.environ["PATH"], **home}
    with WorkerProcess.start(
        stand_in=False, under=nobody, env=env, threads=1, tensor_parallel_size=ranks
    ) as worker:
        assert await answers(worker)
    assert "Traceback" not in worker.log
    if find_compiler() and not find_prebuilt():
        worker.logged(r"CPU path: torch, .* set (HOME or )?XDG_CACHE_HOME to a folder")


@pytest.mark.e2e
async def test_a_read_only_folder_for_temporary_files_is_passed_over(
    nobody: Sequence[str], temporary: Path
) -> None:
    read_only = temporary / "read only"
    read_only.mkdir(mode=0o555)
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(read_only)}
    with WorkerProcess.start(under=nobody, env=env) as worker:
        assert await answers(worker)


@pytest.mark.e2e
async def test_a_path_that_is_too_long_for_sockets_is_named_in_one_line(temporary: Path) -> None:
    long = temporary / ("x" * 90)
    long.mkdir()
    env = {**os.environ, "TMPDIR": str(long)}
    with WorkerProcess.start(ready=False, env=env) as worker:
        worker.logged("cannot start: .*xxx.*the system allows 107; set TMPDIR to a shorter path")
        assert await worker.exit_code() == 1
    assert len(worker.log.splitlines()) == 1
    assert not list(long.iterdir())


def test_where_no_folder_can_be_made_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self")
    with pytest.raises(CannotStartError, match="set TMPDIR to a folder that user"), socket_folder():
        pass


@pytest.mark.e2e
async def test_what_a_killed_worker_left_goes_at_the_next_start(temporary: Path) -> None:
    env = {**os.environ, "TMPDIR": str(temporary)}

    def folders() -> set[Path]:
        return set(temporary.glob(f"{PREFIX}*"))

    with WorkerProcess.start(env=env) as living:
        [of_living] = folders()
        with WorkerProcess.start(env=env) as killed:
            killed.process.kill()
            await killed.exit_code()
        assert len(folders()) == 2, "nobody was there to remove it"
        with WorkerProcess.start(env=env) as third:
            left = folders()
            assert of_living in left
            assert len(left) == 2, "the third one's and that of the one that lives"
            assert await answers(third)
        assert await answers(living)


def test_a_folder_of_another_owner_or_without_a_lock_stays(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    strange = temporary / f"{PREFIX}strange"
    strange.mkdir()
    with socket_folder() as first, socket_folder() as second:
        assert first.is_dir()
        assert second.is_dir()
        assert first.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == [strange]
