"""Traces with audio: tokens by the rule that routers use, shared prefixes by the files' hashes."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pando_fleet.images.rule import ImageRule
from pando_fleet.images.sound_rule import SoundRule
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_sim.request import Request
from pando_sim.traces import Reading, TraceError, open_trace
from tests.sim.traces.files import equal_start, json_lines, mooncake, packed

WINDOW = 1500
WHISPER = ImageRule(kind="none", sounds=SoundRule(window_s=30.0, tokens=WINDOW))
SEEING = ImageRule(kind="fixed", tokens=576, sounds=WHISPER.sounds)
HELLO, BYE = [2.0, "hello"], [31.5, "bye"]


def read(trace: Path, rule: ImageRule | None = WHISPER) -> list[Request]:
    return list(open_trace(trace, Reading(image_rule=rule)))


def heard(*files: list[Any], **more: Any) -> dict[str, Any]:
    return {"timestamp": 0, "output_tokens": 5, "audio_seconds": list(files), **more}


def test_a_file_has_the_tokens_of_the_rule_in_front_of_the_prompt(tmp_path: Path) -> None:
    prompt = "Names: Anna, Otto. " * 9
    rows = [heard(HELLO), heard(BYE), heard(HELLO, BYE), heard(prompt=prompt)]
    rows.append(heard(HELLO, prompt=prompt))
    short, long, both, plain, asked = read(json_lines(tmp_path / "trace", rows))
    assert [one.prompt.num_tokens for one in (short, long, both)] == [
        WINDOW,
        2 * WINDOW,
        3 * WINDOW,
    ]
    assert asked.prompt.num_tokens == WINDOW + plain.prompt.num_tokens
    np.testing.assert_array_equal(asked.prompt.tokens()[WINDOW:], plain.prompt.tokens())
    assert both.prompt.tokens().min() >= 0


def test_equal_files_share_their_tokens_and_different_ones_share_none(tmp_path: Path) -> None:
    rows = [heard(HELLO), heard(HELLO, prompt="Anna"), heard([2.0, "other"]), heard(HELLO, BYE)]
    first, again, other, both = read(json_lines(tmp_path / "trace", rows))
    for same in (again, both):
        assert equal_start(first.prompt.tokens(), same.prompt.tokens()) == WINDOW
        chunks = equal_start(packed(first.prompt.keys()), packed(same.prompt.keys()))
        assert chunks == WINDOW * 4 // CHUNK_BYTES
    assert equal_start(first.prompt.tokens(), other.prompt.tokens()) == 0
    assert first.prompt.keys()[:8] != other.prompt.keys()[:8]


def test_audio_stands_in_front_of_mooncakes_blocks_and_of_images(tmp_path: Path) -> None:
    image = {"images": [[640, 480, "hello"]]}
    rows = [
        mooncake(0, 1100, [7, 8, 9], 5),
        mooncake(1, 1100, [7, 8, 9], 5, audio_seconds=[HELLO]),
        mooncake(2, 1100, [7, 8, 9], 5, audio_seconds=[HELLO], **image),
    ]
    plain, sound, both = read(json_lines(tmp_path / "trace", rows), SEEING)
    np.testing.assert_array_equal(sound.prompt.tokens()[WINDOW:], plain.prompt.tokens())
    assert equal_start(sound.prompt.tokens(), both.prompt.tokens()) == WINDOW
    np.testing.assert_array_equal(both.prompt.tokens()[WINDOW + 576 :], plain.prompt.tokens())


@pytest.mark.parametrize(
    ("row", "rule", "message"),
    [
        (heard(HELLO), None, "no --image-rule with `sounds`"),
        (heard(HELLO), ImageRule(kind="fixed", tokens=576), "no --image-rule with `sounds`"),
        (mooncake(0, 512, [7], audio_seconds=[HELLO]), None, "no --image-rule with `sounds`"),
        (heard([0.0, "hello"]), WHISPER, "audio_seconds"),
        (heard([2.0]), WHISPER, "audio_seconds"),
        (heard(), WHISPER, "neither messages nor a prompt"),
        (heard(HELLO, images=[[9, 9, "cat"]]), WHISPER, "--image-rule gives them no tokens"),
    ],
)
def test_what_is_wrong_with_audio_is_said_with_its_line(
    tmp_path: Path, row: dict[str, Any], rule: ImageRule | None, message: str
) -> None:
    with pytest.raises(TraceError, match=rf"trace:1: .*{message}"):
        read(json_lines(tmp_path / "trace", [row]), rule)


def test_a_trace_with_audio_goes_to_another_process(tmp_path: Path) -> None:
    trace = open_trace(json_lines(tmp_path / "trace", [heard(HELLO)]), Reading(image_rule=WHISPER))
    (request,) = pickle.loads(pickle.dumps(trace))
    assert request.prompt.num_tokens == WINDOW
