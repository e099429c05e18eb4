"""Malformed and hostile files: each is refused with its reason, and the next one is read."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.files import fuzzing
from benchmarks.files.worst_files import FILES, HOSTILE, claimed
from docsplit.extraction.content import Content, Heading, Limits, StartError
from docsplit.extraction.reading import Reader
from docsplit.extraction.sandbox import Sandbox
from tests.conftest import examples
from tests.extraction.conftest import Read, content_of, outcomes, reason_of

MADE = list(fuzzing.made_files())


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
        "from docsplit.extraction.content import Content\n"
        "flawed = types.ModuleType('flawed')\n"
        "def read(stream, limits):\n"
        "    exec(compile(stream.read(), 'flaw', 'exec'), names := globals() | {})\n"
        "    return Content(str(names['found']))\n"
        "flawed.read = read\n"
        "sys.modules['docsplit.extraction.readers.rtf'] = flawed\n"
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


@examples(30)
@given(seed=st.integers(0, 2**64))
def test_a_mutated_file_gives_a_text_or_a_reason(read_bounded: Read, seed: int) -> None:
    random = Random(seed)
    kind, content = random.choice(MADE)
    for _, found in read_bounded(kind, fuzzing.mutated(content, random)):
        fuzzing.check(found)


@pytest.mark.parametrize(
    "content",
    [
        Content(" "),
        Content("a text", pages=[0, 7]),
        Content("a text", pages=[3, 0]),
        Content("a text", headings=[Heading(9, 1, "a")]),
        Content("a text", scans=[0]),
    ],
)
def test_a_text_with_places_outside_it_does_not_pass(content: Content) -> None:
    with pytest.raises(AssertionError):
        fuzzing.check(content)
    fuzzing.check(Content("a text", pages=[0, 6], headings=[Heading(2, 1, "text")]))
