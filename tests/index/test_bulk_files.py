"""``docsplit-index`` on a folder of files: changed, renamed, removed and unreadable ones."""

from __future__ import annotations

import json
from pathlib import Path

import lancedb

from benchmarks.files.making import made, packed
from benchmarks.files.source import AUTHOR, sources
from service.index.rows import outline
from tests.index.test_bulk import run

FIRST, SECOND = sources(2)


def test_a_folder_is_followed_file_by_file(tmp_path: Path) -> None:
    folder, store = tmp_path / "folder", tmp_path / "index"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(made(".pdf", FIRST).content)
    (folder / "b.docx").write_bytes(made(".docx", FIRST).content)
    (folder / "c.html").write_bytes(made(".html", FIRST).content)
    (folder / "d.zip").write_bytes(packed({"one.txt": "One text.", "two.txt": "Two texts."}))
    (folder / "e.pdf").write_bytes(b"%PDF-1.7")
    (folder / "g.md").write_text("# A text\n")
    first = run(folder, store)
    assert first.returncode == 1
    assert "6 written, 0 unchanged, 0 repeated ids, 1 refused" in first.stderr
    assert "refused: e.pdf: a damaged PDF file" in first.stderr

    (folder / "b.docx").write_bytes(made(".docx", SECOND).content)
    (folder / "c.html").rename(folder / "f.html")
    (folder / "a.pdf").unlink()
    # its documents stay, because nobody knows what it holds
    (folder / "d.zip").write_bytes(b"damaged")
    (folder / "e.pdf").write_bytes(made(".pdf", SECOND).content)
    second = run(folder, store, "--prune")
    assert second.returncode == 1
    assert "3 written, 1 unchanged, 0 repeated ids, 1 refused, 2 pruned" in second.stderr
    [table] = lancedb.connect(store / "indexes").list_tables().tables
    rows = lancedb.connect(store / "indexes").open_table(table).to_arrow()
    held = {row["id"]: row for row in rows.to_pylist() if not row["deleted"]}
    ids = ["b.docx", "d.zip/one.txt", "d.zip/two.txt", "e.pdf", "f.html", "g.md"]
    assert sorted(held) == ids
    assert held["e.pdf"]["title"] == SECOND.title
    assert json.loads(held["e.pdf"]["metadata"])["author"] == AUTHOR
    known = outline.opened(held["e.pdf"]["outline"], held["e.pdf"]["digest"])
    assert known is not None
    assert known.page(0) == 1
    assert known.headings[0][1] in [text for level, text in SECOND.blocks if level]
    assert held["b.docx"]["text"].startswith(SECOND.blocks[0][1])
