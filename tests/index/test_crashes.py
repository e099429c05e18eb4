"""Kills and power failures at any step of a write: acknowledged documents survive."""

from __future__ import annotations

import asyncio
import ctypes
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.index.storage import volume as disk
from service.index.storage.volume import Volume
from tests.conftest import NIGHTLY, ROOT
from tests.index import piped, writing
from tests.index.test_recovery import ids

# calls by which LanceDB and the service change the store
STEPS = "write,pwrite64,link,linkat,rename,renameat,renameat2,mkdir,unlink,syncfs,fsync"
# of linux/prctl.h
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)
_NAMED = "link,linkat,rename,renameat,renameat2"
# the last call of a thread: before a manifest gets its name, before a sync, and in between
KILLS = ((_NAMED, 5), ("syncfs", 9), ("unlink", 3), ("write", 80))


def traceable() -> bool:
    tracer = shutil.which("strace")
    if tracer is None:
        return False
    return not subprocess.run([tracer, "true"], capture_output=True).returncode


async def missing(folder: Path, lines: list[str]) -> tuple[set[str], set[str]]:
    """Acknowledged documents that are missing, and deleted ones that exist.

    An unacknowledged deletion or upsert may have happened or not.
    """
    indexes = await writing.opened(folder)
    if "+" not in lines:
        # the creation of the index was not acknowledged
        await indexes.create("x", {})
    held = set(await ids(indexes, "x"))
    deleted = {line[1:] for line in lines if line[0] == "-"}
    written = {line[1:] for line in lines if line[0] == "+"} - {""} - deleted
    # each third document is deleted after its acknowledgement
    unfinished = {name for name in written if int(name.split(".")[1]) % 3 == 2}
    assert len(held) == len(await ids(indexes, "x"))
    # writes and cleanups still work
    await writing.write(indexes, 9, 3)
    return written - unfinished - held, deleted & held


@pytest.mark.skipif(not traceable(), reason="strace is missing or may not trace")
@pytest.mark.parametrize(("calls", "number"), KILLS)
def test_a_kill_at_any_step_loses_nothing_acknowledged(
    tmp_path: Path, calls: str, number: int
) -> None:
    folder = tmp_path / "index"
    with piped.Forked(write_when_traced, folder) as writer:
        traced = ["strace", "-f", "-o", "/dev/null", f"--trace={calls}"]
        traced += [f"--inject={calls}:signal=KILL:when={number}", "-p", str(writer.pid)]
        with subprocess.Popen(traced, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr is not None
            assert "attached" in tracer.stderr.readline()
            writer.stdin.write(b"\n")
            lines = writer.stdout.read().decode().split("\n")[:-1]
    assert writer.returncode == -signal.SIGKILL
    assert asyncio.run(missing(folder, lines)) == (set(), set())


def write_when_traced(folder: Path) -> None:
    """Let another process trace this one, wait for a line of stdin, then write."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)
    sys.stdin.readline()
    asyncio.run(writing.main(folder))


@pytest.mark.skipif(not traceable(), reason="strace is missing or may not trace")
def test_the_answer_follows_the_sync_of_the_manifest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # the kernel stops the process at these calls only
    traced = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", str(log)]
    command = [*traced, f"--trace={STEPS}", "-s", "80"]
    command += [sys.executable, "-m", "tests.index.writing", str(tmp_path / "index"), "1"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120)
    synced = acknowledged = 0
    linked: list[int] = []
    began: dict[str, int] = {}
    for number, line in enumerate(log.read_text().splitlines(), start=1):
        process, call = line.split(maxsplit=1)
        if re.match(r"(link|rename)\w*\(.*x\.a+\.\w+\.lance/_versions/\d+\.manifest", call):
            linked.append(number)
        elif call.startswith("syncfs("):
            began[process] = number
        if ("syncfs(" in call or "syncfs resumed" in call) and call.endswith("= 0"):
            synced = max(synced, began[process])
        if call.startswith('write(1, "+0.0'):
            acknowledged = number
            # the first commit of a document follows the table's own four commits
            assert synced > linked[4]
    assert acknowledged


@pytest.mark.parametrize("durability", ["fsync", "commit"])
def test_a_power_failure_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """A possible folder after a power failure: all unsynced data is torn in one way or another.

    Without syncs, the control, acknowledged documents are lost.
    """
    folder = tmp_path / "index"
    lines: list[str] = []
    on_disk: list[dict[Path, tuple[int, int]]] = [{}]
    monkeypatch.setattr(writing, "acknowledge", lines.append)
    whole = disk._flusher

    def flusher(path: Path):  # type: ignore[no-untyped-def]
        flush = whole(path)

        def noted() -> None:
            # writes during the sync may be on disk or not: they count as lost
            before = listing(folder)
            flush()
            on_disk[0] = before

        return noted

    monkeypatch.setattr(disk, "_flusher", flusher)
    if durability == "commit":
        monkeypatch.setattr(Volume, "sync", nothing)
    draw = random.Random(11)
    failures: list[tuple[Path, list[str]]] = []

    async def fail() -> None:
        for number in range(8 if NIGHTLY else 4):
            await asyncio.sleep(draw.uniform(0.02, 0.25))
            found = tmp_path / f"after-{number}"
            # first the lines: acknowledged documents were on disk before the copy
            acknowledged = list(lines)
            after_power_failure(folder, found, on_disk[0], draw)
            failures.append((found, acknowledged))

    async def main() -> None:
        indexes = await writing.opened(folder)
        await indexes.create("x", {})
        await indexes.database.sync()
        lines.append("+")
        # the first opening of an index starts the process that reads tables first
        await asyncio.gather(*(writing.write(indexes, n) for n in range(4)))
        failing = asyncio.create_task(fail())
        writer = 4
        while not failing.done():
            await asyncio.gather(*(writing.write(indexes, writer + n) for n in range(4)))
            writer += 4
        await failing

    asyncio.run(main())
    monkeypatch.undo()
    monkeypatch.setattr(writing, "acknowledge", lambda _: None)
    lost = 0
    for found, acknowledged in failures:
        try:
            gone, back = asyncio.run(missing(found, acknowledged))
        except Exception:
            if durability == "fsync":
                raise
            lost += 1
            continue
        lost += len(gone) + len(back)
    assert any(len(acknowledged) > 10 for _, acknowledged in failures)
    assert (lost > 0) == (durability == "commit")


async def nothing(*_: object) -> None:
    """Replaces a sync."""


def listing(folder: Path) -> dict[Path, tuple[int, int]]:
    """Files by path relative to a folder, with values that change when the file changes."""
    found = {}
    for path in folder.rglob("*"):
        try:
            held = path.stat()
        except FileNotFoundError:
            continue
        if path.is_file():
            found[path.relative_to(folder)] = (held.st_ino, held.st_mtime_ns)
    return found


def after_power_failure(
    folder: Path, found: Path, on_disk: dict[Path, tuple[int, int]], draw: random.Random
) -> None:
    """Copy a folder, and tear most of the files that were not on disk."""
    for path, held in listing(folder).items():
        target = found / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            content = (folder / path).read_bytes()
        except FileNotFoundError:
            continue
        if on_disk.get(path) != held:
            fate = draw.choice(["emptied", "cut", "zeros", "missing", "whole"])
            if fate == "missing":
                continue
            kept = {"emptied": 0, "zeros": 0, "cut": len(content) // 2, "whole": len(content)}[fate]
            content = content[:kept] + (bytes(len(content)) if fate == "zeros" else b"")
        target.write_bytes(content)
