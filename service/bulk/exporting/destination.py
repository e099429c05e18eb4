"""The folder of an export: its manifest, its lock, and what an earlier run left."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from service.errors import CommandError

# readers of folders of Parquet files leave out names that begin with _ or a dot
MANIFEST = "_manifest.json"
_PARTIAL = ".partial"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class File:
    """A complete file of an export.

    Attributes:
        bytes: its size.
        sha256: its digest, as ``sha256sum`` prints it.
    """

    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged row, which the export leaves out."""

    document: str
    part: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an export writes; a resumed export must agree with it.

    Attributes:
        generation: of the index; each of its tables has another one.
        form: parquet or arrow.
        windows: whether the vectors of windows are written.
        file_rows: most rows of a file.
    """

    index: str
    generation: str
    form: str
    windows: bool
    file_rows: int


@dataclass(slots=True)
class Manifest:
    """The content of ``_manifest.json``.

    Attributes:
        table, version: the state of the index that is exported.
        pin: names the pin that keeps this state.
        next: number of the table's rows that are done.
        rows: documents in the files.
        columns: name, type and meaning of each column.
        damaged: rows that were left out.
    """

    plan: Plan
    bundle: str
    revision: str
    dimensions: int
    fields: dict[str, str]
    table: str
    version: int
    pin: str
    columns: list[dict[str, str]]
    format: int = FORMAT
    complete: bool = False
    next: int = 0
    rows: int = 0
    files: list[File] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)


class Destination:
    """A folder that one export at a time writes to.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if it is missing, and keep other exports away from it.

        Raises:
            CommandError: it cannot be created, or another export writes to it.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CommandError(f"{self.path}: another export writes to it") from error
            except OSError:
                # a network file system without locks
                pass
            yield
        finally:
            os.close(descriptor)

    def manifest(self) -> Manifest | None:
        """The manifest of an earlier run; None if the folder is empty.

        Raises:
            CommandError: the folder holds something else.
        """
        try:
            return _MANIFEST.validate_json((self.path / MANIFEST).read_bytes())
        except FileNotFoundError:
            pass
        except (ValidationError, OSError) as error:
            raise CommandError(
                f"{self.path / MANIFEST}: not the manifest of an export by this version: give an "
                "empty folder, or a new one"
            ) from error
        if any(not name.endswith(_PARTIAL) for name in os.listdir(self.path)):
            raise CommandError(
                f"{self.path}: not empty, and not an export: give an empty folder, or a new one"
            )
        return None

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest in one step."""
        content: dict[str, Any] = asdict(manifest)
        with self.whole(MANIFEST) as path:
            path.write_text(json.dumps(content, indent=1) + "\n")

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        """A path to write a file at; the file gets its name once it is whole and on disk.

        If the block removes it, there is no such file.

        Raises:
            CommandError: it cannot be written; no part of it stays.
        """
        partial = self.path / f".{name}{_PARTIAL}"
        with writing(self.path):
            try:
                yield partial
                if partial.exists():
                    _flush(partial)
                    partial.replace(self.path / name)
                    _flush(self.path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    def file(self, name: str, rows: int) -> File:
        """The description of a complete file."""
        path = self.path / name
        with writing(self.path), path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return File(name, rows, path.stat().st_size, digest)

    def lacking(self, manifest: Manifest) -> str | None:
        """A file of the manifest that is missing or has another size."""
        for file in manifest.files:
            path = self.path / file.name
            if not path.is_file() or path.stat().st_size != file.bytes:
                return file.name
        return None


_MANIFEST = TypeAdapter(Manifest)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the folder and the remedy where the system refuses a write."""
    try:
        yield
    except OSError as error:
        raise CommandError(
            f"{path}: cannot be written ({error.strerror or error}); what is complete stays: "
            "solve this, then repeat the command"
        ) from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
