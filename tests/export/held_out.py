"""Small held-out sets from the PEPs, without the words that calibrate the tiny exports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

CLASSES = 4
EACH = 60
BEGIN = 200


def write_rows(path: Path, rows: Sequence[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_judged(folder: Path, texts: list[str], documents: int = 90) -> Path:
    """Documents of 20 to 178 words. A query is a document without its first and last words."""
    cut = [text.split()[BEGIN : BEGIN + 20 + 2 * (i % 80)] for i, text in enumerate(texts)]
    kept = [words for words in cut if len(words) >= 20][:documents]
    write_rows(
        folder / "corpus.jsonl",
        [{"_id": f"d{i}", "text": " ".join(words)} for i, words in enumerate(kept)],
    )
    write_rows(
        folder / "queries.jsonl",
        [{"_id": f"q{i}", "text": " ".join(words[4:-4])} for i, words in enumerate(kept)],
    )
    lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(len(kept)))]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_labelled(path: Path, texts: list[str], each: int = EACH, words: int = 30) -> Path:
    """Passages of ``words`` to three and a half times as many words, by their document."""
    longest = sorted(texts, key=len)[-CLASSES:]
    rows = []
    for label, text in enumerate(longest):
        own = text.split()[BEGIN:]
        step = len(own) // each
        for i in range(each):
            passage = own[i * step : i * step + words + 5 * words // 6 * (i % 4)]
            part = "test" if i % 2 else "train"
            rows.append({"text": " ".join(passage), "label": f"document {label}", "split": part})
    write_rows(path, rows)
    return path
