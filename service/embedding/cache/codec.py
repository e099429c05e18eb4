"""Encode vectors as bytes: a version, a digest over name and vector, and fp16."""

import hashlib
import hmac
from enum import StrEnum

import numpy as np

from docsplit.windowing.pooling import Vectors, normalise

_DIGEST_BYTES = 16
_HEAD_BYTES = 1 + _DIGEST_BYTES
# without a secret, and with one: neither kind of value is accepted as the other
_PLAIN = b"\x01"
_SIGNED = b"\x02"
# fp16 changes each component by at most 2**-11 of itself, and so the length
_LENGTH_TOLERANCE = 2e-3


class Fault(StrEnum):
    """Why a value is unusable.

    DAMAGED: wrong type, size, version or checksum, or not a unit vector.
    FORGED: the digest was not made with the secret, this name and this vector.
    """

    DAMAGED = "damaged"
    FORGED = "forged"


class Codec:
    """Packs and checks the values of a cache that others can write to.

    The digest covers the entry's name, so a value moved to another name fails the check.

    Args:
        secret: key of the digest (BLAKE2b, RFC 7693, 128 bits). Without a secret the digest is only
        a checksum: it finds damage, but no deliberate change.

    Attributes:
        value_bytes: length of every value.
        signed: whether values are authenticated.
        label: names the format and the secret. It belongs in the names of entries, so that values
            of other formats and secrets have other names.
    """

    def __init__(self, dimensions: int, secret: str | None = None) -> None:
        self.value_bytes = _HEAD_BYTES + 2 * dimensions
        self.signed = secret is not None
        self._version = _SIGNED if self.signed else _PLAIN
        self._key = b"" if secret is None else _derived(secret, b"values")
        self.label = "v2" if secret is None else f"v2-{_derived(secret, b'label')[:4].hex()}"

    def pack(self, name: bytes, vector: Vectors) -> bytes:
        """The value of a unit vector ``[dimensions]`` under ``name``."""
        body = vector.astype("<f2").tobytes()
        return self._version + self._digest(name, body) + body

    def unpack(self, name: bytes, value: object) -> Vectors | Fault:
        """The vector, scaled back to unit length, or the fault of the value.

        Args:
            name: name of the entry that was read.
            value: the server's answer, of any type.
        """
        if not isinstance(value, bytes) or len(value) != self.value_bytes:
            return Fault.DAMAGED
        digest, body = value[1:_HEAD_BYTES], value[_HEAD_BYTES:]
        if value[:1] != self._version:
            return Fault.FORGED if value[:1] == _PLAIN else Fault.DAMAGED
        if not hmac.compare_digest(digest, self._digest(name, body)):
            return Fault.FORGED if self.signed else Fault.DAMAGED
        half = np.frombuffer(body, dtype="<f2")
        if not np.isfinite(half).all():
            return Fault.DAMAGED
        vector = half.astype(np.float32)
        if abs(float(np.linalg.norm(vector)) - 1) > _LENGTH_TOLERANCE:
            return Fault.DAMAGED
        return normalise(vector)

    def _digest(self, name: bytes, body: bytes) -> bytes:
        digest = hashlib.blake2b(len(name).to_bytes(4, "little"), key=self._key, digest_size=16)
        digest.update(name)
        digest.update(body)
        return digest.digest()


def _derived(secret: str, purpose: bytes) -> bytes:
    """32 bytes that do not reveal the secret, different for each purpose."""
    return hashlib.blake2b(
        purpose, key=hashlib.blake2b(secret.encode()).digest(), digest_size=32
    ).digest()
