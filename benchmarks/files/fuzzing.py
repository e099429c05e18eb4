"""Reads mutated files of every kind and says how the readings ended.

    python -m benchmarks.files.fuzzing --seconds 3600

Each file must give a text with pages and headings inside it, or a reason, whatever its bytes are.
A file that does not is kept in the folder of ``--keep``, and the run ends with status 1. Reasons
that name a crash or an exception show where a reader could be more careful.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from benchmarks.files.making import KINDS, made, packed
from benchmarks.files.pdf import pdf
from benchmarks.files.source import sources
from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.reading import Outcome, Reader

LIMITS = Limits(
    memory=1 << 28, seconds=5, pages=40, characters=400_000, members=500, unpacked=1 << 26, scans=0
)
_PLACES = (b"<", b">", b"&", b'"', b"\0", b"\xff\xfe", b"%d" % (1 << 31), b"-1", b"\r\n", b"(" * 50)
_NAMES = re.compile(r"[\d,]+")


def main() -> int:
    """Mutate, read, count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*", help="further files to mutate")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("."), help="folder for files that fail")
    given = parser.parse_args()
    files = [*made_files(), *((path.suffix.lower(), path.read_bytes()) for path in given.files)]
    random, ends = Random(given.seed), Counter[str]()
    end = time.monotonic() + given.seconds
    with Reader(LIMITS, ocr="off") as reader:
        while time.monotonic() < end:
            kind, content = random.choice(files)
            content = mutated(content, random)
            try:
                for one in read(reader, kind, content):
                    ends[f"{kind}: {ending(one)}"] += 1
            except Exception as error:  # noqa: BLE001 whatever it is, the file shows it again
                kept = given.keep / f"fuzzed-{given.seed}-{ends.total()}{kind}"
                kept.write_bytes(content)
                print(f"{kept}: {error!r}", file=sys.stderr)
                return 1
    print("| kind and end | files |\n|---|---:|")
    for name, count in ends.most_common():
        print(f"| {name} | {count:,} |")
    return 0


def read(reader: Reader, kind: str, content: bytes) -> list[Outcome]:
    """What a file gives, checked."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        found = list(reader.read(kind, file))
    for _, one in found:
        check(one)
    return found


def check(one: Content | UnreadableError) -> None:
    """Raise AssertionError unless it is a reason, or a text with places inside it, in order."""
    if isinstance(one, UnreadableError):
        assert str(one)
        return
    assert one.text.strip()
    assert not one.scans
    starts: list[Sequence[int]] = [one.pages, [heading.start for heading in one.headings]]
    for places in starts:
        assert list(places) == sorted(places)
        assert all(0 <= place <= len(one.text) for place in places)
    assert all(heading.title for heading in one.headings)


def ending(outcome: Outcome) -> str:
    """How a reading ended, without numbers."""
    _, one = outcome
    return _NAMES.sub("N", str(one)) if isinstance(one, UnreadableError) else "read"


def mutated(content: bytes, random: Random) -> bytes:
    """A file, or a part of an archive, with some bytes changed, deleted, repeated and inserted."""
    if content.startswith(b"PK") and random.random() < 0.8:
        # a changed byte of a whole archive seldom gets past its checksums to the parser
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        name = random.choice(list(parts))
        return packed({**parts, name: _changed(parts[name], random)})
    return _changed(content, random)


def _changed(content: bytes, random: Random) -> bytes:
    held = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        if not held:
            break
        place, size = random.randrange(len(held)), random.randint(1, 50)
        match random.randrange(5):
            case 0:
                held[place] = random.randrange(256)
            case 1:
                del held[place : place + size]
            case 2:
                start = random.randrange(len(held))
                held[place:place] = held[start : start + size]
            case 3:
                held[place:place] = random.choice(_PLACES)
            case _:
                held = held[:place] if random.random() < 0.1 else held
    return bytes(held)


def made_files() -> Iterator[tuple[str, bytes]]:
    """Kinds and contents of sound files: of each kind at least one."""
    [source] = sources(1)
    for kind in KINDS:
        yield kind, made(kind, source).content
    yield ".pdf", pdf(source, columns=2)[0]
    stored = Path(__file__).parents[2] / "tests" / "extraction" / "libreoffice"
    for path in sorted(stored.iterdir()):
        yield path.suffix, path.read_bytes()
    texts = {f"a{kind}": made(kind, source).content for kind in (".txt", ".html")}
    yield ".zip", packed(dict(texts))


if __name__ == "__main__":
    sys.exit(main())
