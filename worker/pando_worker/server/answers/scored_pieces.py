"""Finds the tokens that wrote each piece of an output, for an API whose log-probabilities belong to
one piece instead of the whole output.

A piece does not say where in the output it stands, since parsers leave tags and white space out and
hold text back. So the output is parsed character by character: what a parser emits then continues
the piece before, or ends with the character that it has just read, or shortly before it. Where this
is not enough (an answer that begins with the beginning of a tag, twice), a token may be left out.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from pando_worker.parsers.output import OutputParser
from pando_worker.parsers.pieces import CallArguments, CallStart, Content, Piece, Reasoning
from pando_worker.server.text.reader import ScoredToken

ScoredPiece = tuple[Piece, list[ScoredToken]]


class ScoredPieces:
    """Parses one output. Unless `wanted`, no piece has tokens."""

    def __init__(self, parser: OutputParser, *, wanted: bool) -> None:
        self._parser = parser
        self._wanted = wanted
        self._unplaced = ""  # the text behind the last piece whose place is known
        self._start = 0  # its place in the output, in characters
        self._last: type[Piece] | None = None  # the kind of that piece
        self._tokens: deque[ScoredToken] = deque()  # that no piece has yet, in order

    def push(
        self, text: str, scored: Sequence[ScoredToken], *, ends: bool
    ) -> Iterator[ScoredPiece]:
        """The pieces that an output's next text makes certain, each with its tokens.

        Args:
            scored: tokens of this text, or of earlier text
            ends: whether the output ends with this text
        """
        if not self._wanted:
            pieces = self._parser.push(text) + (self._parser.flush() if ends else [])
            yield from ((piece, []) for piece in pieces)
            return
        self._tokens += scored
        begin = self._start + len(self._unplaced)
        for part in _cut(text, {token.offset - begin for token in scored}):
            yield from _joined(chain.from_iterable(map(self._read, part)))
        if ends:
            yield from map(self._with_tokens, self._parser.flush())

    def _read(self, character: str) -> list[ScoredPiece]:
        self._unplaced += character
        return [self._with_tokens(piece) for piece in self._parser.push(character)]

    def _with_tokens(self, piece: Piece) -> ScoredPiece:
        return piece, self._take(piece)

    def _take(self, piece: Piece) -> list[ScoredToken]:
        """The tokens of the next piece; those before it are dropped."""
        before, self._last = self._last, type(piece)
        if isinstance(piece, CallStart | CallArguments):
            return []
        continues = before is type(piece) and self._unplaced.startswith(piece.text)
        at = 0 if continues else self._unplaced.rfind(piece.text)
        if at < 0:
            return []
        at += self._start
        end = at + len(piece.text)
        self._unplaced = self._unplaced[end - self._start :]
        self._start = end
        taken: list[ScoredToken] = []
        while self._tokens and self._tokens[0].offset < end:
            token = self._tokens.popleft()
            # The piece's first token may begin in text that was left out. Parts of one character
            # share their place.
            if taken and taken[-1].offset < token.offset <= at:
                taken.clear()
            taken.append(token)
        return taken


def _cut(text: str, places: Iterable[int]) -> Iterator[str]:
    at = 0
    for place in sorted(place for place in places if 0 < place < len(text)):
        yield text[at:place]
        at = place
    yield text[at:]


def _joined(pieces: Iterable[ScoredPiece]) -> Iterator[ScoredPiece]:
    """Neighbours that continue each other become one piece."""
    last: ScoredPiece | None = None
    for piece, tokens in pieces:
        if last and (whole := _continued(last[0], piece)):
            last = whole, last[1] + tokens
            continue
        if last:
            yield last
        last = piece, tokens
    if last:
        yield last


def _continued(piece: Piece, following: Piece) -> Piece | None:
    """Both as one piece, or None if the second one begins something else."""
    match piece, following:
        case Content(text), Content(more):
            return Content(text + more)
        case Reasoning(text), Reasoning(more):
            return Reasoning(text + more)
        case CallArguments(index, text), CallArguments(same, more) if index == same:
            return CallArguments(index, text + more)
    return None
