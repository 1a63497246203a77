"""Keys hidden behind a secret: by AES, as OpenSSL's own command computes it."""

import os

import pytest

from pando_router.recording.disguise import Disguise
from pando_router.recording.form import HIDDEN_BYTES

SECRET = b"a secret of these tests"


def parts(packed: bytes, size: int) -> list[bytes]:
    return [packed[start : start + size] for start in range(0, len(packed), size)]


@pytest.mark.parametrize("count", [0, 1, 8, 5_000])
def test_each_key_is_hidden_by_itself(count: int) -> None:
    keys = os.urandom(8 * count)
    hidden = parts(Disguise(SECRET).keys(keys), HIDDEN_BYTES)
    again = Disguise(SECRET)
    assert hidden == [again.keys(key) for key in parts(keys, 8)]
    assert len(set(hidden)) == count
    assert not set(hidden) & {part[:HIDDEN_BYTES] for part in parts(keys, 8)}


def test_other_secrets_hide_otherwise_and_have_other_names() -> None:
    one, other = Disguise(SECRET), Disguise(SECRET + b"!")
    keys = os.urandom(64)
    assert not set(parts(one.keys(keys), HIDDEN_BYTES)) & set(parts(other.keys(keys), HIDDEN_BYTES))
    assert one.secret != other.secret
    assert one.name("a session") != other.name("a session")


def test_a_key_becomes_the_beginning_of_its_aes_block() -> None:
    """What `openssl enc -aes-128-ecb -nopad -K` makes of each key and eight zeros, with the key
    `ccf1f4634c4ffab6fec7fd2586c08f2c`, which follows from the secret."""
    by_openssl = bytes.fromhex(
        "1a56304a02e2ebcc9f802502abd94fc790bbfb359fb1b6e6"
        "97f26414e2c3b2d332146b5126f1d59028f7bfb1acdab7ba"
    )
    assert Disguise(SECRET).keys(bytes(range(64))) == by_openssl
