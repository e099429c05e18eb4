"""``docsplit-keys``."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.keys.__main__ import main
from service.keys.file import Right
from service.keys.ring import Keyring, Refusal


def new(capsys: pytest.CaptureFixture[str], path: Path, name: str, *flags: str) -> bytes:
    assert main(["new", name, "--file", str(path), *flags]) == 0
    return capsys.readouterr().out.strip().encode()


def test_a_new_key_is_accepted_and_its_token_is_not_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    flags = ("--read-indexes", "papers", "--read-indexes", "news-*", "--requests-per-second", "5")
    first = new(capsys, path, "search", *flags, "--days", "30")
    second = new(capsys, path, "all")
    assert first.decode() not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    ring = Keyring(path=path)
    found = ring.check(first)
    assert (found.key.name, found.refusal) == ("search", None)
    assert found.key.requests.rate == 5
    assert found.key.rights.may(Right.READ_INDEXES, "news-1")
    assert not found.key.rights.may(Right.WRITE_INDEXES, "papers")
    assert ring.check(second).key.rights.may(Right.WRITE_INDEXES, "papers")


def test_the_folder_of_a_new_file_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "of" / "keys" / "keys.toml"
    token = new(capsys, path, "search")
    assert Keyring(path=path).check(token).refusal is None


@pytest.mark.parametrize("command", ["new", "revoke", "list"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name = [] if command == "list" else ["search"]
    path = tmp_path / "keys.toml"
    path.write_bytes(b"\xff\xfe")
    assert main([command, *name, "--file", str(path)]) == 2
    assert capsys.readouterr().err == f"docsplit-keys: {path}: cannot be read: it is not UTF-8\n"
    assert main([command, *name, "--file", str(tmp_path)]) == 2
    assert f"{tmp_path}: cannot be read: Is a directory" in capsys.readouterr().err


def test_revoking_keeps_comments_and_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    token, other = new(capsys, path, "search"), new(capsys, path, "search-2")
    path.write_text("# whose is it?\n" + path.read_text())
    path.chmod(0o640)
    ring = Keyring(path=path)
    assert main(["revoke", "search", "--file", str(path)]) == 0
    assert path.read_text().startswith("# whose is it?\n")
    assert path.stat().st_mode & 0o777 == 0o640
    ring.reload()
    assert ring.check(token).refusal is Refusal.REVOKED
    assert ring.check(other).refusal is None


def test_the_list_shows_the_rights_of_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    token = new(capsys, path, "search", "--use-classifiers", "topics")
    new(capsys, path, "all")
    assert main(["list", "--file", str(path)]) == 0
    said = capsys.readouterr().out
    assert "use_classifiers topics" in said
    assert "everything" in said
    assert token.decode() not in said


def test_the_list_cuts_nothing_in_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = tmp_path / "keys.toml"
    new(capsys, path, "search", "--days", "30", "--read-indexes", "z" * 63)
    assert main(["list", "--file", str(path)]) == 0
    said = capsys.readouterr().out
    assert "+00:00" in said
    assert said.count("z") == 63


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["new", "a"], "already"),
        (["new", "B"], "keys.B: the name of a key has 1 to 63 lower-case letters"),
        (["new", "a b"], "keys.a b: the name of a key has 1 to 63 lower-case letters"),
        (
            ["new", "b", "--read-indexes", "x'y"],
            "read_indexes.0: a pattern has 1 to 63 lower-case letters",
        ),
        (["new", "b", "--requests-per-second", "-1"], "requests_per_second"),
        (["new", "b", "--days", "0"], "--days"),
        (["revoke", "b"], "no key b"),
        (["revoke", "inline"], "by hand"),
    ],
)
def test_a_failed_command_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'keys.inline.sha256 = "{"1" * 64}"\nkeys.a.sha256 = "{"0" * 64}"\n')
    before = path.read_text()
    assert main([*arguments, "--file", str(path)]) == 2
    assert said in capsys.readouterr().err
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
