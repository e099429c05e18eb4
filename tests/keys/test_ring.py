"""Keys in memory: the decision about a token, and that its timing reveals nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest
from pydantic import SecretStr

from service.keys import file
from service.keys.file import KeysError, Right, digest
from service.keys.ring import BURST_SECONDS, Bucket, Keyring, Refusal

TOKENS = {
    name: file.new_token() for name in ("good", "other", "revoked", "expired", "narrow", "fast")
}
FIELDS = {
    "good": "",
    "other": 'read_indexes = ["papers", "news-*"]',
    "revoked": "revoked = true",
    "expired": "expires = 2020-01-01T00:00:00Z",
    "narrow": "requests_per_second = 0.1",
    "fast": "tokens_per_second = 100",
}


def entry(name: str, token: str, fields: str = "") -> str:
    return f'[keys.{name}]\nsha256 = "{digest(token.encode()).hex()}"\n{fields}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "keys.toml"
    written.write_text("\n".join(entry(n, t, FIELDS[n]) for n, t in TOKENS.items()))
    return written


def refusal(ring: Keyring, token: str) -> Refusal | None:
    return ring.check(token.encode()).refusal


def test_the_decision_about_a_token(path: Path) -> None:
    ring = Keyring(path=path)
    assert refusal(ring, TOKENS["good"]) is None
    assert refusal(ring, TOKENS["good"][:-1]) is Refusal.UNKNOWN
    assert refusal(ring, "") is Refusal.MISSING
    assert refusal(ring, TOKENS["revoked"]) is Refusal.REVOKED
    assert refusal(ring, TOKENS["expired"]) is Refusal.EXPIRED
    assert [refusal(ring, TOKENS["narrow"]) for _ in range(2)] == [None, Refusal.RATE]
    assert ring.check(TOKENS["other"].encode()).key.name == "other"


def test_a_repeated_token_is_one_key(path: Path) -> None:
    plain = [SecretStr(TOKENS["good"]), SecretStr(TOKENS["good"])]
    found = Keyring(plain, path).check(TOKENS["good"].encode())
    assert (found.key.name, found.refusal) == ("good", None)


Result = TypeVar("Result")


def steps(act: Callable[[], Result]) -> tuple[list[str], Result]:
    """Every call and return in order, including those into C, and the result."""
    seen: list[str] = []

    def record(frame: FrameType, event: str, argument: Any) -> None:
        name = argument.__qualname__ if event.startswith("c_") else frame.f_code.co_qualname
        seen.append(f"{event} {name}")

    sys.setprofile(record)
    try:
        result = act()
    finally:
        sys.setprofile(None)
    return seen, result


def test_every_token_takes_the_same_steps(path: Path) -> None:
    ring = Keyring(path=path)
    assert refusal(ring, TOKENS["narrow"]) is None
    offered = ["", "x", TOKENS["good"][:-1] + "!", *TOKENS.values()]
    expected = {
        Refusal.MISSING,
        Refusal.UNKNOWN,
        Refusal.REVOKED,
        Refusal.EXPIRED,
        Refusal.RATE,
        None,
    }
    taken = {}
    for token in offered:
        taken[token], verdict = steps(partial(ring.check, token.encode()))
        expected.discard(verdict.refusal)
    assert expected == set()
    assert len(set(map(tuple, taken.values()))) == 1
    assert any("compare_digest" in step for step in taken[""])


def test_the_check_sees_a_search_that_ends_early() -> None:
    tokens = list(TOKENS.values())

    def early(token: str) -> bool:
        return any(digest(token.encode()) == digest(known.encode()) for known in tokens)

    assert steps(lambda: early(tokens[0])) != steps(lambda: early(tokens[-1]))


def test_only_named_rights_apply(path: Path) -> None:
    ring = Keyring(path=path)
    everything = ring.check(TOKENS["good"].encode()).key.rights
    assert all(everything.may(right, "anything") for right in Right)
    some = ring.check(TOKENS["other"].encode()).key.rights
    assert some.may(Right.READ_INDEXES, "papers")
    assert some.may(Right.READ_INDEXES, "news-2024")
    assert not some.may(Right.READ_INDEXES, "papers2")
    assert not any(some.may(right, "papers") for right in Right if right != Right.READ_INDEXES)


def test_a_bucket_fills_at_its_rate_and_holds_a_burst() -> None:
    now = [0.0]
    bucket = Bucket(2.0, lambda: now[0])
    admitted = 0
    while bucket.wait(1.0) == 0:
        bucket.take(1.0)
        admitted += 1
    assert admitted == 2 * BURST_SECONDS
    assert bucket.wait(1.0) == pytest.approx(0.5)
    now[0] = 0.5
    assert bucket.wait(1.0) == 0
    now[0] = 1e6
    assert bucket.wait(2 * BURST_SECONDS) == 0
    assert bucket.wait(2 * BURST_SECONDS + 1) > 0


def test_tokens_are_charged_afterwards(path: Path) -> None:
    ring = Keyring(path=path)
    key = ring.check(TOKENS["fast"].encode()).key
    key.tokens.take(100 * BURST_SECONDS + 500)
    again = ring.check(TOKENS["fast"].encode())
    assert again.refusal is Refusal.RATE
    assert 4 < again.wait <= 5


def replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def test_a_changed_file_applies_and_keeps_the_used_rate(path: Path) -> None:
    ring = Keyring(path=path)
    refusal(ring, TOKENS["narrow"])
    fresh = file.new_token()
    changed = path.read_text().replace(
        entry("good", TOKENS["good"]), entry("good", TOKENS["good"], "revoked = true")
    )
    replace(path, changed + entry("fresh", fresh))
    assert refusal(ring, fresh) is Refusal.UNKNOWN
    ring.reload()
    assert refusal(ring, fresh) is None
    assert refusal(ring, TOKENS["good"]) is Refusal.REVOKED
    assert refusal(ring, TOKENS["narrow"]) is Refusal.RATE


@pytest.mark.parametrize("broken", [None, "[keys", '[keys.a]\nsha256 = "plain-token"\n'])
def test_an_invalid_file_keeps_the_former_keys(path: Path, broken: str | None) -> None:
    ring = Keyring(path=path)
    before = path.read_text()
    if broken is None:
        path.unlink()
    else:
        replace(path, broken)
    ring.reload()
    assert ring.stale
    assert refusal(ring, TOKENS["good"]) is None
    assert refusal(ring, TOKENS["revoked"]) is Refusal.REVOKED
    replace(path, before.replace(entry("good", TOKENS["good"]), ""))
    ring.reload()
    # mypy narrows ring.stale to True
    assert vars(ring)["stale"] is False
    assert refusal(ring, TOKENS["good"]) is Refusal.UNKNOWN


def test_a_file_without_keys_admits_no_client(tmp_path: Path) -> None:
    empty = tmp_path / "keys.toml"
    empty.touch()
    ring = Keyring(path=empty)
    assert ring.required
    assert refusal(ring, "anything") is Refusal.UNKNOWN
    assert not Keyring().required


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[keys", "not TOML"),
        ("keys = " + "[" * 5000, "not TOML"),
        ("keys = " + "9" * 5000, "not TOML"),
        ("[keys.A]\nsha256 = ''", "keys.A"),
        ("[keys.a]", "keys.a.sha256: missing; docsplit-keys new writes it"),
        (entry("a", "x", "sha265 = 'ff'"), "keys.a.sha265: .* did you mean sha256"),
        (entry("a", "x", "read_indexes = 'x'"), "keys.a.read_indexes: give a list"),
        (entry("a", "x", "expires = 'soon'"), "keys.a.expires: give a date and time with an off"),
        (entry("a", "x", "requests_per_second = 0"), "keys.a.requests_per_second"),
        (entry("a", "x", "expires = 2027-01-01T00:00:00"), "keys.a.expires: give a date"),
        (entry("a", "x", "read_indexes = ['../x']"), "keys.a.read_indexes"),
        (entry("a", "x") + entry("b", "x"), "a and b are the same key"),
        ("keys = 1", "keys"),
        ("kyes = 1", "kyes: .* did you mean keys"),
    ],
)
def test_messages_name_the_fault_of_a_file(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(KeysError, match=named):
        Keyring(path=path)


def test_a_token_in_place_of_its_hash_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[keys.a]\nsha256 = "a-plain-token"\n')
    with pytest.raises(KeysError) as refused:
        Keyring(path=path)
    assert "a-plain-token" not in str(refused.value)
