"""`Disguise`: hides the keys of chunks, and names, behind a secret."""

from array import array
from hashlib import blake2b, sha256

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.recording.form import HIDDEN_BYTES

BLOCK_BYTES = 16


class Disguise:
    """For one thread at a time.

    A key becomes the beginning of its AES block: nobody without the secret can tell that from
    chance, and all keys of many prompts take one call, at 20 ns each.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret` must be hard to guess."""
        # Here, as it takes 30 ms, and most routers do not record.
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._base = blake2b(key=sha256(secret).digest(), digest_size=HIDDEN_BYTES)
        key = blake2b(b"keys", key=sha256(secret).digest(), digest_size=16).digest()
        # Each block stands for itself, as equal beginnings must stay equal.
        self._encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update
        # It names how keys are hidden, too: those of another way are not comparable.
        name = blake2b(b"secret, AES", key=sha256(secret).digest(), digest_size=8)
        self.secret = name.hexdigest()

    def keys(self, keys: bytes) -> bytes:
        """Turns packed keys of KEY_BYTES into packed keys of HIDDEN_BYTES."""
        blocks = array("Q", bytes(2 * len(keys)))
        blocks[::2] = array("Q", keys)
        encrypted = self._encrypt(blocks.tobytes())
        hidden = bytearray(len(keys) // KEY_BYTES * HIDDEN_BYTES)
        for place in range(HIDDEN_BYTES):
            hidden[place::HIDDEN_BYTES] = encrypted[place::BLOCK_BYTES]
        return bytes(hidden)

    def name(self, name: str) -> str:
        hidden = self._base.copy()
        hidden.update(name.encode())
        return hidden.hexdigest()
