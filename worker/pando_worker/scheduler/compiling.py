"""`Compiling`: requests whose grammars other threads compile, before they join the queue."""

from pando_worker.grammar.errors import GrammarError
from pando_worker.scheduler.batches.constrained import PendingGrammar
from pando_worker.scheduler.req import Req


class Compiling:
    def __init__(self) -> None:
        self._entries: list[tuple[Req, PendingGrammar]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, req: Req, grammar: PendingGrammar) -> None:
        self._entries.append((req, grammar))

    def take_done(self) -> list[tuple[Req, PendingGrammar]]:
        """Remove and return those that are compiled, by arrival."""
        # Read once: other threads complete them meanwhile.
        done = [grammar.done() for _, grammar in self._entries]
        if not any(done):
            return []
        entries = list(zip(self._entries, done, strict=True))
        self._entries = [entry for entry, is_done in entries if not is_done]
        return [entry for entry, is_done in entries if is_done]

    def cancel_ended(self) -> None:
        for req, grammar in self._entries:
            if req.ending is not None:
                grammar.cancel()
        self._entries = [entry for entry in self._entries if entry[0].ending is None]


def set_grammar(req: Req, compiled: PendingGrammar) -> None:
    """Give a request its grammar, advanced by the output that a resumed request brings with it.

    Raises:
        GrammarError: it could not be compiled, or that output does not follow it.
    """
    req.grammar = compiled.result()
    for token in req.tokens(req.num_known)[req.prompt_len :].tolist():
        if not req.grammar.accept(token):
            raise GrammarError("the output to continue does not follow the grammar")
