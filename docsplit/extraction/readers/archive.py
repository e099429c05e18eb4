"""Archives and packed files: what they hold, as lines of JSON."""

import bz2
import gzip
import json
import lzma
import tarfile
import zipfile
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import PurePosixPath
from typing import IO, BinaryIO, NamedTuple

from docsplit.extraction.content import Limits, UnreadableError
from docsplit.extraction.kinds import ARCHIVES, OLD, READERS, SOURCES

_CHUNK = 1 << 20
_LINK = 0xA
_MARKED_UTF_8 = 0x800
_PACKED = (*ARCHIVES, ".tgz", ".gz", ".bz2", ".zst", ".csv", ".tsv", ".jsonl", ".parquet")
# what systems put into folders and archives
_JUNK = {".DS_Store", "Thumbs.db", "desktop.ini"}
# names of files of an unknown kind in a message
_SHOWN = 3
_BAD = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)


class Member(NamedTuple):
    """A file in an archive; ``open`` gives its content, of at most ``size`` bytes."""

    name: str
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack(stream: BinaryIO, kind: str, limits: Limits) -> Iterator[bytes]:
    """Lines for each member of a known kind, and for those of each other ending together.

    A member is a line with ``name``, then lines with ``data`` in base64, then one with ``end``, or
    one with ``refused`` and the reason.

    Raises:
        UnreadableError: the archive is damaged, it has too many members or bytes, or no member of
            a known kind.
    """
    try:
        members = list(islice((_zip if kind == ".zip" else _tar)(stream), limits.members + 1))
    except _BAD as error:
        raise UnreadableError("no archive of this kind, or a damaged one") from error
    if len(members) > limits.members:
        raise UnreadableError(f"more than {limits.members:,} files in it; split it")
    if sum(member.size for member in members) > limits.unpacked:
        raise UnreadableError(f"it unpacks to more than {limits.unpacked:,} bytes; split it")
    known = False
    left_out: defaultdict[str, list[str]] = defaultdict(list)
    for member in members:
        path = PurePosixPath(member.name)
        ending = path.suffix.lower()
        if "__MACOSX" in path.parts or path.name in _JUNK:
            continue
        if ending not in (*READERS, *SOURCES, *OLD, *_PACKED):
            left_out[ending].append(member.name)
            continue
        known = True
        yield _line(name=member.name)
        if ending in _PACKED:
            yield _refused("a table or an archive within an archive; unpack the outer one")
        elif ending in OLD:
            yield _refused(OLD[ending])
        elif ".." in path.parts or path.is_absolute():
            yield _refused("its name leaves the archive")
        else:
            yield from _content(member)
    if not known:
        raise UnreadableError(
            f"no file of a known kind in it; known are {', '.join((*READERS, *SOURCES))}"
        )
    for ending, names in sorted(left_out.items()):
        yield _line(name=f"*{ending}")
        some = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        yield _refused(f"{len(names):,} left out, of no kind that is read: {some}")


def unpacked(stream: BinaryIO, packing: str, limits: Limits) -> BinaryIO:
    """The content of a packed file, which may take half of ``limits.unpacked``.

    Raises:
        UnreadableError: the file is damaged or too large.
    """
    most = limits.unpacked // 2
    try:
        with (bz2 if packing == ".bz2" else gzip).open(stream) as content:
            found = content.read(most + 1)
    except _BAD as error:
        raise UnreadableError(f"no {packing} file, or a damaged one") from error
    if len(found) > most:
        raise UnreadableError(f"it unpacks to more than {most:,} bytes; split it")
    return BytesIO(found)


def _content(member: Member) -> Iterator[bytes]:
    try:
        if (part := member.open()) is not None:
            with part:
                while chunk := part.read(_CHUNK):
                    yield _line(data=b64encode(chunk).decode())
    except _BAD as error:
        encrypted = isinstance(error, RuntimeError) and "encrypted" in str(error)
        yield _refused("encrypted; unpack it first" if encrypted else "damaged")
    else:
        yield _line(end=True)


def _zip(stream: BinaryIO) -> Iterator[Member]:
    archive = zipfile.ZipFile(stream)
    for one in archive.infolist():
        # the upper half of the attributes is the Unix mode; a link has no content of its own
        if not one.is_dir() and (one.external_attr >> 28) != _LINK:
            yield Member(_name(one), one.file_size, partial(archive.open, one))


def _name(member: zipfile.ZipInfo) -> str:
    """The name of a file in a zip archive, also in UTF-8 that is not marked, as macOS writes it."""
    if not member.flag_bits & _MARKED_UTF_8:
        with suppress(UnicodeError):
            return member.filename.encode("cp437").decode()
    return member.filename


def _tar(stream: BinaryIO) -> Iterator[Member]:
    archive = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 the process ends soon
    for one in archive:
        if one.isreg():
            yield Member(one.name.removeprefix("./"), one.size, partial(archive.extractfile, one))


def _refused(reason: str) -> bytes:
    return _line(refused=reason, whole=False)


def _line(**content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"
