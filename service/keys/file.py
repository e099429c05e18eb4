"""The keys' file: TOML with a table ``[keys.NAME]`` for each key, and without secrets.

A token has 256 random bits, so no attacker can find it from its SHA-256 by trying likely tokens.
Slow hashes (scrypt, Argon2) protect passwords that people choose. Here they would cost each request
milliseconds, and clients that send wrong keys could keep the service busy.
"""

import enum
import hashlib
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from service.errors import ServiceError
from service.unknown import field_names, remedy, unknown_name


class Right(enum.StrEnum):
    """A kind of access; the keys' file has a field of the same name."""

    READ_INDEXES = "read_indexes"
    WRITE_INDEXES = "write_indexes"
    USE_CLASSIFIERS = "use_classifiers"
    TRAIN_CLASSIFIERS = "train_classifiers"


@dataclass(frozen=True, slots=True)
class Rights:
    """Patterns of names for each right.

    Attributes:
        patterns: names with ``*`` and ``?`` as in shells; a missing right allows no name.
    """

    patterns: Mapping[Right, tuple[str, ...]]

    def may(self, right: Right, name: str) -> bool:
        """Whether one of the right's patterns matches."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns.get(right, ()))


EVERYTHING = Rights(dict.fromkeys(Right, ("*",)))


if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# the service compares each request's token with every key
MOST_KEYS = 1000
MOST_RATE = 1e12
TOKEN_BYTES = 32
# secret scanners and people recognise a token by this
TOKEN_PREFIX = "docsplit_"  # noqa: S105

NAME = "^[a-z][a-z0-9_-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME)]
_Pattern = Annotated[str, Field(pattern="^[a-z0-9_*?-]{1,63}$")]
FORMS = {
    NAME: "the name of a key has 1 to 63 lower-case letters, digits, - and _, "
    "and begins with a letter",
    "^[a-z0-9_*?-]{1,63}$": "a pattern has 1 to 63 lower-case letters, digits, -, _, * and ?",
    "^[0-9a-f]{64}$": "a SHA-256 has 64 digits from 0 to f",
}


class KeysError(ServiceError):
    """The file is invalid; the message names file, key and field, never a token."""


class KeyEntry(BaseModel):
    """One key of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    read_indexes: tuple[_Pattern, ...] | None = None
    write_indexes: tuple[_Pattern, ...] | None = None
    use_classifiers: tuple[_Pattern, ...] | None = None
    train_classifiers: tuple[_Pattern, ...] | None = None
    requests_per_second: float | None = Field(None, gt=0, le=MOST_RATE)
    tokens_per_second: float | None = Field(None, gt=0, le=MOST_RATE)
    expires: AwareDatetime | None = None
    revoked: bool = False

    @property
    def rights(self) -> Rights:
        """All rights if the file names none, otherwise only the named ones."""
        given = {right: getattr(self, right) for right in Right}
        if all(patterns is None for patterns in given.values()):
            return EVERYTHING
        return Rights({right: patterns or () for right, patterns in given.items()})


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: dict[Name, KeyEntry] = Field(default_factory=dict, max_length=MOST_KEYS)

    @model_validator(mode="after")
    def _once(self) -> Self:
        seen: dict[str, str] = {}
        for name, entry in self.keys.items():
            if (other := seen.setdefault(entry.sha256, name)) != name:
                raise ValueError(f"{other} and {name} are the same key")
        return self


def digest(token: bytes) -> bytes:
    """The stored form of a token."""
    return hashlib.sha256(token).digest()


def new_token() -> str:
    """A new random token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def parse(text: str, path: Path) -> dict[str, KeyEntry]:
    """The keys of a file by name.

    Args:
        path: for messages.

    Raises:
        KeysError: the file is not TOML, or a key or field is invalid.
    """
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # besides its own error the parser raises those of too many digits, and of too deep a list
        raise KeysError(f"{path}: not TOML: {error}") from error
    try:
        return _File.model_validate(found).keys
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "keys"
        raise KeysError(f"{path}: {place}: {_advice(first)}") from None


def _advice(error: "ErrorDetails") -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        *table, name = map(str, error["loc"])
        return unknown_name([name], field_names(KeyEntry if table else _File)) or ""
    if kind == "missing":
        return "missing; docsplit-keys new writes it"
    if kind.startswith(("datetime", "timezone")):
        return "give a date and time with an offset, such as 2027-01-01T00:00:00Z"
    return remedy(error, FORMS)


def read(path: Path) -> dict[str, KeyEntry]:
    """The keys of the file at ``path`` by name.

    Raises:
        KeysError: the file cannot be read or is invalid.
    """
    return parse(text(path), path)


def text(path: Path) -> str:
    """The text of the file at ``path``.

    Raises:
        KeysError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise KeysError(f"{path}: cannot be read: it is not UTF-8") from error
    except OSError as error:
        raise KeysError(f"{path}: cannot be read: {error.strerror}") from error
