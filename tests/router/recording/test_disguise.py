"""Keys hidden behind a secret: by AES, checked with OpenSSL's own command."""

import os
import shutil
import subprocess
from hashlib import blake2b, sha256

import pytest

from pando_router.recording.disguise import MOST_KEYS, Disguise
from pando_router.recording.form import HIDDEN_BYTES

SECRET = b"a secret of these tests"


def parts(packed: bytes, size: int) -> list[bytes]:
    return [packed[start : start + size] for start in range(0, len(packed), size)]


@pytest.mark.parametrize("count", [0, 1, 8, MOST_KEYS])
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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_a_key_becomes_the_beginning_of_its_aes_block() -> None:
    key = blake2b(b"keys", key=sha256(SECRET).digest(), digest_size=16).hexdigest()
    keys = os.urandom(64)
    blocks = b"".join(part + bytes(8) for part in parts(keys, 8))
    made = subprocess.run(
        ["openssl", "enc", "-aes-128-ecb", "-K", key, "-nopad"],
        input=blocks,
        capture_output=True,
        check=True,
    ).stdout
    assert Disguise(SECRET).keys(keys) == b"".join(block[:6] for block in parts(made, 16))
