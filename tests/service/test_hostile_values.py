"""For any value under a name in Redis, the cache returns the stored vector or nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.embedding.cache.codec import Codec, Fault

DIMENSIONS = 8
NAME = b"prefix:key"
VECTOR = np.full(DIMENSIONS, DIMENSIONS**-0.5, dtype=np.float32)
secrets = st.sampled_from([None, "a secret of thirty-two characters or more"])
size = len(Codec(DIMENSIONS).pack(NAME, VECTOR))


@given(secrets, st.binary(max_size=2 * size) | st.binary(min_size=size, max_size=size))
def test_other_bytes_give_no_vector(secret: str | None, value: bytes) -> None:
    assert isinstance(Codec(DIMENSIONS, secret).unpack(NAME, value), Fault)


@given(secrets, st.integers(0, 8 * size - 1))
def test_one_flipped_bit_gives_no_vector(secret: str | None, bit: int) -> None:
    codec = Codec(DIMENSIONS, secret)
    value = bytearray(codec.pack(NAME, VECTOR))
    kept = codec.unpack(NAME, bytes(value))
    assert not isinstance(kept, Fault)
    np.testing.assert_allclose(kept, VECTOR, atol=1e-3)
    value[bit // 8] ^= 1 << bit % 8
    assert isinstance(codec.unpack(NAME, bytes(value)), Fault)


@given(secrets, st.none() | st.integers() | st.text() | st.lists(st.binary()))
def test_other_types_give_no_vector(secret: str | None, value: object) -> None:
    assert isinstance(Codec(DIMENSIONS, secret).unpack(NAME, value), Fault)
