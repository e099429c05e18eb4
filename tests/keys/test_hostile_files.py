"""Every keys' file and every token is accepted or refused with a reason."""

from __future__ import annotations

import json
import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from service.keys import file
from service.keys.file import KeyEntry, KeysError
from service.keys.ring import Keyring, Refusal

TOKEN = "the-one-token-of-these-tests"
DIGEST = file.digest(TOKEN.encode()).hex()

names = st.sampled_from(["a", "search", "A", "", "é", "x" * 64]) | st.text(max_size=8)
values = (
    st.sampled_from([DIGEST, DIGEST.upper(), "0" * 64, "2027-01-01T00:00:00Z", "*", "papers"])
    | st.text(max_size=8)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.lists(st.sampled_from(["*", "papers", "", "a b", "é"]), max_size=3)
)
fields = st.dictionaries(st.sampled_from([*KeyEntry.model_fields, "unknown"]), values, max_size=5)


def as_toml(keys: dict[str, dict[str, object]]) -> str:
    """JSON strings, numbers and lists are also valid TOML."""
    lines = []
    for name, entry in keys.items():
        lines.append(f"[keys.{json.dumps(name)}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    return "\n".join(lines)


def parsed(text: str) -> dict[str, KeyEntry] | str:
    """The keys, or the reason why there are none."""
    try:
        return file.parse(text, Path("keys.toml"))
    except KeysError as error:
        return str(error)


@given(st.dictionaries(names, fields, max_size=3))
def test_a_file_is_read_or_refused_with_a_reason(keys: dict[str, dict[str, object]]) -> None:
    read = parsed(as_toml(keys))
    if isinstance(read, str):
        assert read.startswith("keys.toml: ")
        assert len(read) < 1000
        return
    assert set(read) == set(keys)
    for entry in read.values():
        for rate in (entry.requests_per_second, entry.tokens_per_second):
            assert rate is None or (math.isfinite(rate) and rate > 0)


@given(st.text(max_size=200))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    read = parsed(text)
    assert isinstance(read, dict) or read.startswith("keys.toml: ")


@given(st.binary(max_size=600))
def test_any_token_but_the_right_one_is_refused(token: bytes) -> None:
    ring = Keyring([SecretStr(TOKEN)])
    expected = Refusal.UNKNOWN if token else Refusal.MISSING
    assert ring.check(token).refusal is expected
    assert ring.check(TOKEN.encode()).refusal is None
