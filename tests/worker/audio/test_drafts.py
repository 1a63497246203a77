"""Answers to windows that are kept for equal ones."""

from dataclasses import replace

from pando_worker.audio.drafts import Drafts, Question

ASKED = Question(namespace=b"", digest=b"window", prompt=(1, 2), timestamps=False)


def test_an_answer_is_that_of_the_same_question_alone() -> None:
    drafts = Drafts()
    drafts.put(ASKED, [5, 51_864])
    assert drafts.get(ASKED) == [5, 51_864]
    for other in (
        replace(ASKED, namespace=b"tenant"),
        replace(ASKED, digest=b"other"),
        replace(ASKED, prompt=(1, 3)),
        replace(ASKED, timestamps=True),
    ):
        assert drafts.get(other) is None


def test_the_answers_used_last_are_kept() -> None:
    drafts = Drafts(most=2)
    asked = [replace(ASKED, digest=bytes([at])) for at in range(3)]
    drafts.put(asked[0], [0])
    drafts.put(asked[1], [1])
    assert drafts.get(asked[0]) == [0]
    drafts.put(asked[2], [2])
    assert [drafts.get(one) for one in asked] == [[0], None, [2]]
    assert len(drafts) == 2
    drafts.clear()
    assert drafts.get(asked[0]) is None
