"""A folder of files in an index: changed, renamed, removed and unreadable ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.files.making import made, packed
from benchmarks.files.source import AUTHOR, sources
from docsplit.corpora.documents import Refused, read_documents
from service.bulk.loader import Encoded, Report, Updater, here, load_documents, prune
from service.errors import CommandError
from service.index.documents import whole
from service.index.indexes import Indexes
from service.index.rows.records import encoded
from tests.index.processes import Replicas, embedded, run

FIRST, SECOND = sources(2)


async def load(indexes: Indexes, folder: Path) -> tuple[Report, list[str], int]:
    """What ``docsplit-index FOLDER --prune`` does; the model does not matter here."""

    async def encode(texts: Mapping[str, str]) -> Encoded:
        return Encoded({name: encoded(embedded(text)) for name, text in texts.items()})

    unread: list[Refused] = []
    index = await indexes.open("x")
    documents = read_documents(folder, refuse=unread.append)
    update = here(Updater(index, encode, indexes.database.sync))
    report = await load_documents(documents, update, lambda _: None)
    names = [one.id for one in unread]
    return report, names, await prune(indexes, "x", index, report.ids, names)


def test_a_folder_is_followed_file_by_file(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    @run
    async def scenario(replicas: Replicas) -> None:
        indexes = await replicas.open("a")
        await indexes.create("x", {})
        (folder / "a.pdf").write_bytes(made(".pdf", FIRST).content)
        (folder / "b.docx").write_bytes(made(".docx", FIRST).content)
        (folder / "c.html").write_bytes(made(".html", FIRST).content)
        (folder / "d.zip").write_bytes(packed({"one.txt": "One text.", "two.txt": "Two texts."}))
        (folder / "e.pdf").write_bytes(b"%PDF-1.7")
        (folder / "g.md").write_text("# A text\n")
        report, unread, pruned = await load(indexes, folder)
        assert (report.written, unread, pruned) == (6, ["e.pdf"], 0)

        (folder / "a.pdf").unlink()
        (folder / "b.docx").write_bytes(made(".docx", SECOND).content)
        (folder / "c.html").rename(folder / "f.html")
        # it can't be read, so --prune keeps its documents
        (folder / "d.zip").write_bytes(b"damaged")
        (folder / "e.pdf").write_bytes(made(".pdf", SECOND).content)
        report, unread, pruned = await load(indexes, folder)
        assert (report.written, report.unchanged) == (3, 1)
        assert (unread, pruned) == (["d.zip"], 2)

        index = await indexes.open("x")
        for name in ("b.docx", "d.zip/one.txt", "d.zip/two.txt", "e.pdf", "f.html", "g.md"):
            assert await index.has(name)
        assert await index.count() == 6
        held, _ = await whole(index, "e.pdf")
        assert (held.title, held.metadata["author"]) == (SECOND.title, AUTHOR)
        assert held.outline is not None
        assert held.outline.page(0) == 1
        assert held.outline.headings[0][1] in [text for level, text in SECOND.blocks if level]
        assert (await whole(index, "b.docx"))[0].text.startswith(SECOND.blocks[0][1])
        # an unchanged folder changes nothing
        report, _, pruned = await load(indexes, folder)
        assert (report.written, report.unchanged, pruned) == (0, 4, 0)

        # a table whose writer failed
        (tmp_path / "empty.csv").write_text("id,text\n")
        with pytest.raises(CommandError, match="would delete all 6 of the index and deleted none"):
            await load(indexes, tmp_path / "empty.csv")
        assert await index.count() == 6

    scenario(tmp_path / "store")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    for name in (b"a.txt", b"caf\xe9.txt"):
        (tmp_path / os.fsdecode(name)).write_text("A text.")
    refused: list[Refused] = []
    read = read_documents(tmp_path, refuse=refused.append)
    assert [one.id for one in read] == ["a.txt"]
    assert refused == [Refused("caf?.txt", "its name is not UTF-8; rename the file")]
