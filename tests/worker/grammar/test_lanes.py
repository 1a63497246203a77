"""Grammars that wait to be compiled: cheap ones never wait for expensive ones, unwanted ones are
dropped, and clients take turns."""

import threading
from concurrent.futures import Future
from functools import partial

import pytest

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.grammar.errors import GrammarError
from pando_worker.grammar.lanes import Lane
from pando_worker.server.jobs.constraints import grammar_of
from tests.waiting import PATIENCE_S
from tests.worker.grammar.world import World


def test_clients_take_turns_whatever_each_has_waiting() -> None:
    lane, done, may_go = Lane("test"), list[str](), threading.Event()
    last: Future[None] = Future()
    lane.submit(b"first", partial(_wait, may_go))
    for index in range(4):
        lane.submit(b"a", lambda index=index: done.append(f"a{index}"))  # type: ignore[misc]
    lane.submit(b"b", lambda: done.append("b"))
    lane.submit(b"c", lambda: done.append("c"))
    lane.submit(b"a", lambda: last.set_result(None))
    may_go.set()
    last.result(timeout=PATIENCE_S)
    assert done == ["a0", "b", "c", "a1", "a2", "a3"]
    assert len(lane) == 0
    lane.close()


def test_a_cheap_grammar_does_not_wait_for_costly_ones(byte_level: World) -> None:
    compiler = byte_level.compiler
    costly = [compiler.compile(_costly(index)) for index in range(8)]
    cheap = [compiler.compile(_regex(f"[ab]{{{index}}}")) for index in range(1, 9)]
    for future in cheap:
        future.result(timeout=PATIENCE_S)
    left = [future for future in costly if not future.done()]
    assert len(left) >= 6, "each takes a second or so"
    for future in left:
        future.cancel()


def test_what_nobody_waits_for_is_not_compiled(
    byte_level: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = byte_level.compiler
    made: list[str] = []
    compile_really = GrammarCompiler._compile

    def count(self: GrammarCompiler, text: str) -> object:
        made.append(text)
        return compile_really(self, text)

    monkeypatch.setattr(GrammarCompiler, "_compile", count)
    blocked = threading.Event()
    for lane in (compiler._tries, compiler._costly):
        lane.submit(b"", partial(_wait, blocked))
    futures = [compiler.compile(_regex(f"c{index}[ab]+")) for index in range(300)]
    wanted = compiler.compile(_regex("c7[ab]+"))  # the same text as one that is aborted
    for future in futures:
        future.cancel()
    blocked.set()
    wanted.result(timeout=PATIENCE_S)
    again = compiler.compile(_regex("c9[ab]+"))
    again.result(timeout=PATIENCE_S)
    assert len(made) == 2


def test_a_costly_grammar_still_says_what_is_wrong(byte_level: World) -> None:
    with pytest.raises(GrammarError, match="too many expressions"):
        byte_level.compiler.compile(_costly(1000)).result(timeout=PATIENCE_S)


def _regex(pattern: str) -> str:
    grammar = grammar_of(regex=pattern)
    assert grammar is not None
    return grammar


def _costly(index: int) -> str:
    return _regex(f"(a{{1000}}b{index}){{1000}}")


def _wait(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S)
