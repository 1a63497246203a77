"""Stop strings compared with a search of the whole text, for any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from pando_worker.server.text.stop_strings import StopStrings

texts = st.text("abc", max_size=40)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def first_stop(text: str, stops: list[str]) -> tuple[int, str] | None:
    """The first position where the text ends with a stop string, by trying every one."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return end, longest
    return None


@given(pieces=st.lists(texts, max_size=8), stops=stop_lists, include=st.booleans())
def test_text_ends_where_a_search_of_the_whole_finds_the_first_stop(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    matcher = StopStrings(stops, include=include)
    out = ""
    for piece in pieces:
        out += matcher.push(piece)
        if matcher.matched is not None:
            break
    else:
        out += matcher.flush()

    text = "".join(pieces)
    found = first_stop(text, stops)
    if found is None:
        assert (out, matcher.matched) == (text, None)
    else:
        end, stop = found
        assert (out, matcher.matched) == (text[: end if include else end - len(stop)], stop)


@given(pieces=st.lists(texts, min_size=1, max_size=8), stops=stop_lists)
def test_only_what_may_begin_a_stop_string_is_held_back(
    pieces: list[str], stops: list[str]
) -> None:
    matcher = StopStrings(stops)
    read = sent = ""
    for piece in pieces:
        read += piece
        sent += matcher.push(piece)
        if matcher.matched is not None:
            return
        held = [n for stop in stops for n in range(len(stop)) if read.endswith(stop[:n])]
        assert len(read) - len(sent) == max(held, default=0)
