"""Lines of JSON and rows of tables, as jobs that embed texts read them."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.embedding.batching.clients import Client
from service.errors import InvalidError, OverloadedError, TooLargeError
from service.server.edge.inflight import Body, Inflight
from service.server.lines.records import Records
from service.textfiles import confined, rows
from service.textfiles.blocks import Texts


async def read(body: bytes, size: int, inflight: Inflight | None = None) -> list[Texts]:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    records = Records(Body(inflight or Inflight(1 << 30), Client("one")), 1 << 20, 1000, 1 << 22)
    return [block async for block in records.blocks(pieces())]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_lines_in_pieces_become_blocks(size: int) -> None:
    lines: list[Any] = ["ein Übel", {"id": "b", "text": ""}, {"text": "c"}, {"id": 7, "text": "d"}]
    body = b"\n\n".join(json.dumps(one, ensure_ascii=False).encode() for one in lines)
    [block] = asyncio.run(read(body, size))
    assert list(block.ids) == [None, "b", None, "7"]
    assert list(block.texts) == ["ein Übel", "", "c", "d"]


def test_blocks_and_lines_are_bounded() -> None:
    blocks = asyncio.run(read(b'"a"\n' * 2500, 1 << 16))
    assert [len(block.texts) for block in blocks] == [1024, 1024, 452]
    long = json.dumps("a" * 300_000).encode() + b"\n"
    assert [len(block.texts) for block in asyncio.run(read(long * 3, 1 << 16))] == [1, 1, 1]
    with pytest.raises(TooLargeError, match="line 2 has more than 1048576 bytes"):
        asyncio.run(read(b'"a"\n"' + b"a" * (1 << 20) + b'"', 1 << 16))
    with pytest.raises(TooLargeError, match="line 1 holds more than 1000 JSON values"):
        asyncio.run(read(b'{"text": "a", "b": [' + b"0," * 2000 + b"0]}", 1 << 16))
    with pytest.raises(TooLargeError, match="max_upload_bytes"):
        asyncio.run(read(long * 15, 1 << 16))
    # a large line needs its memory
    with pytest.raises(OverloadedError, match="memory"):
        asyncio.run(read(long, 1 << 16, Inflight(1 << 20)))
    with pytest.raises(InvalidError, match="line 3: it is not valid JSON"):
        asyncio.run(read(b'"a"\n"b"\n"' + b"a" * 300_000, 1 << 16))


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    for piece in (1, 1 << 16):
        [block] = asyncio.run(read('\ufeff"a"\n"b"'.encode(), piece))
        assert list(block.texts) == ["a", "b"]
    # it is one at the beginning only
    with pytest.raises(InvalidError, match="line 2: it is not valid JSON"):
        asyncio.run(read('"a"\n\ufeff"b"'.encode(), 1 << 16))


def table_of(**columns: Any) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def test_a_table_of_another_form_gets_a_status_of_its_own() -> None:
    texts = ["a", "b"]
    for body, status in {
        table_of(text=texts): 0,
        table_of(text=texts, id=pa.array([1, 2], pa.uint64())): 0,
        table_of(body=texts): confined.NO_TEXT,
        table_of(text=[1, 2]): confined.WRONG_TEXT,
        table_of(text=texts, id=[0.5, 1.5]): confined.WRONG_ID,
    }.items():
        assert confined._read(io.BytesIO(body), io.BytesIO()) == status
        assert (status in rows._REASONS) is (status != 0)
    assert confined.UNREADABLE in rows._REASONS


def test_what_is_no_table_gets_no_process() -> None:
    for body in (b"", b"PAR", table_of(text=["a"])[:-1], b"no table"):
        with pytest.raises(InvalidError, match="no readable Parquet file"):
            rows.check(io.BytesIO(body))
    whole = io.BytesIO(table_of(text=["a"]))
    rows.check(whole)
    assert whole.tell() == 0


# the second reading is that of the file of a user; the first loads what reading loads
_HOSTILE = """
import os
from service.textfiles import confined
read = confined._read
def hostile(source, target):
    target.write(open("/proc/self/comm", "rb").read())
    return read(source, target)
confined._read = hostile
os._exit(confined.main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's seccomp")
@pytest.mark.parametrize("hostile", [False, True])
def test_the_process_that_reads_tables_opens_no_files(tmp_path: Path, hostile: bool) -> None:
    (tmp_path / "a").write_bytes(table_of(text=["a", None]))
    program = ["-c", _HOSTILE] if hostile else ["-m", "service.textfiles.confined"]
    with (tmp_path / "a").open("rb") as file:
        done = subprocess.run([sys.executable, *program], stdin=file, capture_output=True)
    if hostile:
        assert (done.returncode, done.stdout) == (confined.UNREADABLE, b"")
    else:
        assert (done.returncode, done.stdout) == (0, b'{"text":"a"}\n{"text":""}\n')
        assert done.stderr == b""
