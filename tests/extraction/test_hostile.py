"""Malformed and hostile files: each is refused with its reason, and the next one is read."""

from __future__ import annotations

import gzip
import io
import os
import struct
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from benchmarks.files.making import KINDS, made, packed
from benchmarks.files.source import sources
from extraction.content import Content, Limits, StartError, UnreadableError
from extraction.reading import Reader
from extraction.sandbox import Sandbox
from tests.conftest import examples
from tests.extraction.conftest import Outcomes, Read, content_of, outcomes, reason_of

[SOURCE] = sources(1)
FILES = {kind: made(kind, SOURCE).content for kind in KINDS}
WORD = "word/document.xml"
PACKED = (".docx", ".pptx", ".xlsx", ".odt", ".epub")


def replaced(content: bytes, name: str, part: bytes) -> bytes:
    """An office file with another content of one part."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return packed({**{one: archive.read(one) for one in archive.namelist()}, name: part})


def canvas(draw: Callable[[Canvas], None], **options: object) -> bytes:
    target = io.BytesIO()
    made_by = Canvas(target, **options)
    draw(made_by)
    made_by.save()
    return target.getvalue()


def scan(page: Canvas) -> None:
    page.drawImage(ImageReader(Image.new("L", (40, 40), 128)), 0, 0)


def leaf(page: Canvas) -> None:
    for _ in range(21):
        page.showPage()


def unmapped() -> bytes:
    """A PDF whose font has shapes without names."""
    names = " ".join(f"/g{n}" for n in range(1, 27))
    shapes = " ".join(f"/g{n} 6 0 R" for n in range(1, 27))
    font = (
        "<</Type/Font/Subtype/Type3/FontBBox[0 0 500 500]/FontMatrix[.001 0 0 .001 0 0]"
        f"/FirstChar 1/LastChar 26/Widths[{'500 ' * 26}]/CharProcs<<{shapes}>>"
        f"/Encoding<</Type/Encoding/Differences[1 {names}]>>>>"
    )
    text = b"BT /F 20 Tf 50 500 Td (%s) Tj ET" % bytes([*range(1, 9), *range(14, 27)])
    shape = b"500 0 0 0 400 400 d1 0 0 400 400 re f"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 600]/Contents 4 0 R"
        b"/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(text), text),
        font.encode(),
        b"<</Length %d>>stream\n%s\nendstream" % (len(shape), shape),
    ]
    numbered = (b"%d 0 obj\n%s\nendobj\n" % one for one in enumerate(objects, 1))
    return b"%PDF-1.4\n" + b"".join(numbered) + b"trailer<</Root 1 0 R>>"


def entities() -> bytes:
    """XML whose entities grow to gigabytes."""
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<!DOCTYPE d [<!ENTITY e0 "{"x" * 100}">{lines}]><d>&e11;</d>'.encode()


def external(path: str) -> bytes:
    return f'<!DOCTYPE d [<!ENTITY e SYSTEM "file://{path}">]><d><p><t>&e;</t></p></d>'.encode()


def claimed(size: int) -> bytes:
    """A zip archive whose directory claims another size of its one member."""
    whole = bytearray(packed({"a.txt": "A text."}))
    place = whole.index(b"PK\1\2") + 24
    whole[place : place + 4] = struct.pack("<I", size)
    return bytes(whole)


def bomb(size: int, name: str = "a.txt") -> bytes:
    return packed({name: b" " * size})


HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no PDF": (".pdf", lambda: b"PK" + FILES[".docx"][2:], "no PDF file"),
    "a damaged PDF": (".pdf", lambda: b"%PDF-1.7\n" + os.urandom(2000), "a damaged PDF file"),
    "an encrypted PDF": (
        ".pdf",
        lambda: canvas(lambda page: page.drawString(9, 9, "x"), encrypt=StandardEncryption("key")),
        "encrypted; save it without a password",
    ),
    "a scan": (".pdf", lambda: canvas(scan), "a scan without text: install tesseract, or"),
    "fonts without a map to Unicode": (".pdf", unmapped, "its fonts do not say which characters"),
    "an empty PDF": (".pdf", lambda: canvas(lambda page: page.showPage()), "it holds no text"),
    "a PDF of many pages": (".pdf", lambda: canvas(leaf), "21 pages; the limit is 20: split it"),
    "a DOCX that is a PDF": (".docx", lambda: FILES[".pdf"], "no DOCX file, or a damaged one"),
    "a DOCX that is an XLSX": (".docx", lambda: FILES[".xlsx"], "no DOCX file: it lacks word/"),
    "an old or encrypted DOCX": (
        ".docx",
        lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600),
        "encrypted, or in an older format",
    ),
    "a truncated DOCX": (".docx", lambda: FILES[".docx"][:-900], "no DOCX file, or a damaged one"),
    "entities without end": (
        ".docx",
        lambda: replaced(FILES[".docx"], WORD, entities()),
        "its XML defines entities",
    ),
    "a part that names a file": (
        ".odt",
        lambda: replaced(FILES[".odt"], "content.xml", external("/etc/passwd")),
        "its XML defines entities",
    ),
    "XML nested too deeply": (
        ".docx",
        lambda: replaced(
            FILES[".docx"], WORD, b"<d><body>" + b"<q>" * 50_000 + b"</q>" * 50_000 + b"</body></d>"
        ),
        "it is nested too deeply",
    ),
    "a part that unpacks to too much": (
        ".docx",
        lambda: replaced(FILES[".docx"], WORD, b"<d>" + b" " * (1 << 24) + b"</d>"),
        "it unpacks to more than the limit",
    ),
    "a sheet that unpacks to too much": (
        ".xlsx",
        lambda: replaced(FILES[".xlsx"], "xl/worksheets/sheet1.xml", b" " * (1 << 25)),
        "it unpacks to more than the limit",
    ),
    "too many parts": (
        ".epub",
        lambda: packed({"META-INF/container.xml": "", **{str(n): "" for n in range(21)}}),
        "more than 20 parts",
    ),
    "an archive that unpacks to too much": (
        ".zip",
        lambda: bomb(1 << 25),
        "it unpacks to more than 16,777,216 bytes",
    ),
    "an archive of too many files": (
        ".zip",
        lambda: packed({f"{n}.txt": "a" for n in range(21)}),
        "more than 20 files in it",
    ),
    "a packed file that unpacks to too much": (
        ".txt.gz",
        lambda: gzip.compress(b" " * (1 << 24), 1),
        "it unpacks to more than 8,388,608 bytes",
    ),
    "a packed file that is cut off": (
        ".txt.gz",
        lambda: gzip.compress(b"A text.")[:-9],
        "no .gz file, or a damaged one",
    ),
    "a file packed in another way": (
        ".txt.bz2",
        lambda: gzip.compress(b"A text."),
        "no .bz2 file, or a damaged one",
    ),
    "a packed file of another kind": (
        ".pdf.gz",
        lambda: gzip.compress(FILES[".docx"]),
        "no PDF file",
    ),
    "no archive": (".zip", lambda: b"nothing", "no archive of this kind, or a damaged one"),
    "no tar archive": (".tar", lambda: b"nothing" * 999, "no archive of this kind, or a damaged"),
    "a text without end": (
        ".txt",
        lambda: b"\xff" + b"a" * 100_000,
        "more than 100,000 characters",
    ),
    "no text": (".txt", lambda: bytes(range(256)) * 9, "binary content, no text"),
    "nothing": (".html", lambda: b"<script>x</script>", "it holds no text"),
    "no mail": (".eml", lambda: b"\n\nNo header", "no e-mail: it has no header"),
    "no RTF": (".rtf", lambda: b"Hello", "no RTF file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_bad_file_is_refused_with_its_reason(read_bounded: Read, name: str) -> None:
    kind, make, reason = HOSTILE[name]
    assert reason_of(read_bounded(kind, make())).startswith(reason)
    # and takes nothing with it
    assert content_of(read_bounded(".txt", b"\xff\xfeA\0")).text == "A"


def test_a_member_that_claims_another_size_is_refused(read_bounded: Read) -> None:
    [(name, error)] = read_bounded(".zip", claimed(3))
    assert (name, str(error)) == ("a.txt", "damaged")
    assert reason_of(read_bounded(".zip", claimed(2**31 - 1))).startswith("it unpacks to more")


@pytest.fixture(scope="module")
def flaw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Readers that start now have a flaw: they run a file as Python."""
    folder = tmp_path_factory.mktemp("flawed")
    (folder / "sitecustomize.py").write_text(
        "import ctypes, os, signal, socket, sys, threading, types\n"
        "from extraction.content import Content\n"
        "flawed = types.ModuleType('flawed')\n"
        "def read(stream, limits):\n"
        "    exec(compile(stream.read(), 'flaw', 'exec'), names := globals() | {})\n"
        "    return Content(str(names['found']))\n"
        "flawed.read = read\n"
        "sys.modules['extraction.readers.rtf'] = flawed\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


@pytest.fixture(scope="module")
def flawed(flaw: None) -> Iterator[Callable[[str], str]]:
    """The text or the refusal of a file whose reader has the flaw."""
    with Reader(Limits(memory=1 << 28, seconds=1, characters=100_000)) as reader:

        def run(code: str) -> str:
            [(_, found)] = outcomes(reader, ".rtf", code.encode())
            return found.text if isinstance(found, Content) else str(found)

        yield run


def test_a_flawed_reader_runs_the_code_of_the_attacker(flawed: Callable[[str], str]) -> None:
    assert flawed("found = 6 * 7") == "42"


@pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's seccomp")
@pytest.mark.parametrize(
    "call",
    [
        "open('/etc/hostname')",
        "open('{folder}/file', 'w')",
        "os.unlink('{folder}/there')",
        "os.mkdir('{folder}/folder')",
        "os.listdir('/')",
        "os.stat('/')",
        "socket.socket()",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "ctypes.CDLL(None).reboot(0) and None or os.pipe()",
    ],
)
def test_a_flawed_reader_reaches_nothing(
    flawed: Callable[[str], str], tmp_path: Path, call: str
) -> None:
    (tmp_path / "there").write_text("stays")
    call = call.format(folder=tmp_path)
    code = f"try:\n found = {call}\nexcept OSError as error:\n found = type(error)\n"
    assert flawed(code) == "<class 'PermissionError'>"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("found = bytearray(1 << 29)", "reading it takes more than 268,435,456 bytes of memory"),
        ("while True: pass", "reading it takes more than 1 s"),
        ("lock = threading.Lock(); lock.acquire(); lock.acquire()", "reading it takes more than 1"),
        ("found = 'x' * 700_000", "its text is larger than the limit"),
        ("ctypes.string_at(0)", "its reader crashed"),
        ("os._exit(3)", "its reader crashed"),
        ("os.write(5, b'{}'); os._exit(0)", "its reader gave no valid answer"),
        ("raise ValueError", "damaged, or of another kind (ValueError)"),
    ],
)
def test_a_flawed_reader_is_bounded(flawed: Callable[[str], str], code: str, reason: str) -> None:
    assert flawed(code).startswith(reason)
    # the same process reads on, or a new one does
    assert flawed("found = 6 * 7") == "42"


def test_another_thread_interrupts_a_reading(flaw: None) -> None:
    with Reader(Limits(memory=1 << 28, seconds=60)) as reader, ThreadPoolExecutor(1) as pool:
        # the process runs from now on
        assert content_of(outcomes(reader, ".rtf", b"found = 6 * 7")).text == "42"
        reading = pool.submit(outcomes, reader, ".rtf", b"while True: pass")
        with pytest.raises(TimeoutError):
            reading.result(0.2)
        reader.interrupt()
        assert reason_of(reading.result(10)) == "the process that reads files ended"


def test_a_reader_that_cannot_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Reader() as reader, pytest.raises(StartError, match="does not start"):
        outcomes(reader, ".txt", b"\xff\xfeA\0")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_holds_no_secrets_and_ends_with_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCSPLIT_SECRET", "hidden")
    with Sandbox(Limits()) as sandbox, tempfile.TemporaryFile() as file:
        file.write(FILES[".rtf"])
        file.seek(0)
        sandbox.run(".rtf", file).close()
        process = sandbox._process
        assert process is not None
        assert b"hidden" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert process.returncode is not None


def mutated(content: bytes, data: st.DataObject) -> bytes:
    """A file with some bytes changed, deleted and repeated."""
    held = bytearray(content)
    for _ in range(data.draw(st.integers(1, 20))):
        if not held:
            break
        place = data.draw(st.integers(0, len(held) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                held[place] = data.draw(st.integers(0, 255))
            case 1:
                del held[place : place + data.draw(st.integers(1, 50))]
            case _:
                held[place:place] = held[: data.draw(st.integers(0, 50))]
    return bytes(held)


def check(found: Outcomes) -> None:
    for _, one in found:
        assert isinstance(one, Content | UnreadableError)
        assert isinstance(one, UnreadableError) or one.text.strip()


@examples(40)
@given(data=st.data())
def test_a_mutated_file_gives_a_text_or_a_reason(read_bounded: Read, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    check(read_bounded(kind, mutated(FILES[kind], data)))


@examples(15)
@given(data=st.data())
def test_a_mutated_part_gives_a_text_or_a_reason(read_bounded: Read, data: st.DataObject) -> None:
    # a changed byte of a whole archive seldom gets past its checksums to the parser
    kind = data.draw(st.sampled_from(PACKED))
    with zipfile.ZipFile(io.BytesIO(FILES[kind])) as archive:
        name = data.draw(st.sampled_from(archive.namelist()))
        part = mutated(archive.read(name), data)
    check(read_bounded(kind, replaced(FILES[kind], name, part)))
