"""``docsplit-keys``: creates, lists and revokes the keys of a file."""

import argparse
import json
import os
import re
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

from service.keys import file
from service.keys.file import KeyEntry, KeysError, Right

_MOST_DAYS = 36_500


def main(arguments: list[str] | None = None) -> int:
    """Change or show a keys' file.

    Returns:
        Exit status: 0, or 2 if the file or the request is invalid.
    """
    given = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        match given.command:
            case "new":
                _new(given)
            case "revoke":
                _revoke(given.file, given.name)
            case _:
                _list(given.file)
    except (KeysError, OSError) as error:
        print(f"docsplit-keys: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


_MEANINGS = {
    Right.READ_INDEXES: "indexes to read and search",
    Right.WRITE_INDEXES: "indexes to create, write and delete",
    Right.USE_CLASSIFIERS: "classifiers to describe, download and classify with",
    Right.TRAIN_CLASSIFIERS: "classifiers to train and delete",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "docsplit-keys",
        description="Manage the keys of a file that docsplit-serve --keys-file reads. Running "
        "services apply a change within seconds.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="add a key and print its token, once", allow_abbrev=False)
    new.add_argument("name", help="lower-case letters, digits, - and _; appears in the log")
    for right in Right:
        new.add_argument(
            f"--{right.replace('_', '-')}",
            action="append",
            metavar="PATTERN",
            help=f"{_MEANINGS[right]}; * and ? match any characters; may be repeated; a key with "
            "none of the four rights may do everything",
        )
    new.add_argument("--requests-per-second", type=float, metavar="RATE")
    new.add_argument("--tokens-per-second", type=float, metavar="RATE")
    new.add_argument("--days", type=float, help="days until the key expires")
    revoke = commands.add_parser("revoke", help="refuse a key from now on", allow_abbrev=False)
    revoke.add_argument("name")
    listing = commands.add_parser("list", help="show names, rights and limits", allow_abbrev=False)
    new.add_argument(
        "--file", type=Path, required=True, help="created if it is missing, with its folder"
    )
    for command in (revoke, listing):
        command.add_argument("--file", type=Path, required=True, help="the keys' file")
    return parser


def _new(given: argparse.Namespace) -> None:
    path: Path = given.file
    if not re.fullmatch(file.NAME, given.name):
        raise KeysError(f"keys.{given.name}: {file.FORMS[file.NAME]}")
    text = file.text(path) if path.exists() else ""
    if given.name in file.parse(text, path):
        raise KeysError(f"{path}: a key {given.name} already exists")
    token = file.new_token()
    fields = {
        "sha256": json.dumps(file.digest(token.encode()).hex()),
        **{right.value: _array(getattr(given, right)) for right in Right},
        "requests_per_second": given.requests_per_second,
        "tokens_per_second": given.tokens_per_second,
        "expires": _expiry(given.days),
    }
    lines = [f"{name} = {value}" for name, value in fields.items() if value is not None]
    text = f"{text.rstrip()}\n\n" if text.strip() else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, text + "\n".join([f"[keys.{given.name}]", *lines]) + "\n")
    # only the token goes to standard output, so that a pipe can pass it on
    print(token)  # noqa: T201


def _array(patterns: list[str] | None) -> str | None:
    # JSON and TOML write ASCII strings the same way, and patterns are ASCII
    return None if patterns is None else json.dumps(patterns)


def _expiry(days: float | None) -> str | None:
    if days is None:
        return None
    if not 0 < days <= _MOST_DAYS:
        raise KeysError(f"--days: give a number above 0 and up to {_MOST_DAYS}")
    return (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")


def _revoke(path: Path, name: str) -> None:
    text = file.text(path)
    if name not in (entries := file.parse(text, path)):
        raise KeysError(f"{path}: there is no key {name}")
    if entries[name].revoked:
        return
    table = re.compile(rf"^\[keys\.{re.escape(name)}\][^\n]*\n", re.MULTILINE)
    changed = table.sub(lambda found: f"{found[0]}revoked = true\n", text, count=1)
    try:
        done = file.parse(changed, path)[name].revoked
    except KeysError:
        done = False
    if not done:
        raise KeysError(f"{path}: write revoked = true below the key {name} by hand")
    _write(path, changed)


def _list(path: Path) -> None:
    table = Table(box=None)
    for title in ("key", "may", "requests/s", "tokens/s", "expires"):
        # a narrow terminal breaks the rights, and cuts nothing
        table.add_column(title, overflow="fold", no_wrap=title != "may")
    for name, entry in file.read(path).items():
        table.add_row(
            name,
            _may(entry),
            _rate(entry.requests_per_second),
            _rate(entry.tokens_per_second),
            "never" if entry.expires is None else entry.expires.isoformat(timespec="minutes"),
        )
    Console(markup=False).print(table, soft_wrap=True)


def _may(entry: KeyEntry) -> str:
    if entry.revoked:
        return "nothing: revoked"
    if entry.expires is not None and entry.expires <= datetime.now(UTC):
        return "nothing: expired"
    named = {right: getattr(entry, right) for right in Right}
    if all(patterns is None for patterns in named.values()):
        return "everything"
    return "; ".join(f"{right} {' '.join(p)}" for right, p in named.items() if p) or "embed"


def _rate(rate: float | None) -> str:
    return "any" if rate is None else f"{rate:g}"


def _write(path: Path, text: str) -> None:
    """Replace the file in one step: a reading service sees the old or the new one."""
    file.parse(text, path)
    mode = path.stat().st_mode if path.exists() else 0o600
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as stream:
        stream.write(text)
    try:
        os.chmod(stream.name, mode & 0o777)
        os.replace(stream.name, path)
    except OSError:
        os.unlink(stream.name)
        raise


if __name__ == "__main__":
    sys.exit(main())
