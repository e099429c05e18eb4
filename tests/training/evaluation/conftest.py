"""Synthetic data of every kind: a few topics, each with its own words."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path

import pytest

from tests.training.conftest import WORDS, make_tokenizer, save_tiny_model
from training.evaluation import report
from training.evaluation.report import MARKDOWN

TOPICS = 4


def topical(topic: int, seed: int, sentences: int = 6) -> str:
    """A document with words mostly from its topic."""
    draw = random.Random(1000 * topic + seed)
    own = WORDS[topic * 10 : topic * 10 + 10]
    made = []
    for _ in range(sentences):
        words = [draw.choice(own) if draw.random() < 0.4 else draw.choice(WORDS) for _ in range(9)]
        made.append(" ".join(words).capitalize() + ".")
    return " ".join(made)


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def former_plots(_: object, out: Path) -> list[str]:
    """The plots that the last report shows."""
    report = out / MARKDOWN
    shown = report.read_text(encoding="utf-8") if report.exists() else ""
    return re.findall(r"!\[(.+?)\]", shown)


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no plots: each costs a quarter of a second. Module fixtures draw theirs."""
    monkeypatch.setattr(report, "draw", former_plots)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose random weights separate topics."""
    folder = tmp_path_factory.mktemp("tiny")
    return save_tiny_model(folder, make_tokenizer(), seed=0, width=32, layers=2)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a labelled, a linked, a judged and a plain set."""
    folder = tmp_path_factory.mktemp("data")
    labelled: list[dict[str, object]] = [
        {
            "text": topical(topic, number, 4 + 3 * (number % 4)),
            "label": f"topic {topic}",
            "split": "test" if number % 3 == 0 else "train",
        }
        for topic in range(TOPICS)
        for number in range(45)
    ]
    write_rows(folder / "topics.csv", labelled)
    names = [(topic, number) for topic in range(TOPICS) for number in range(20)]
    write_rows(
        folder / "papers" / "documents.jsonl",
        [{"id": f"{t}-{n}", "title": f"Paper {n}", "text": topical(t, 100 + n)} for t, n in names],
    )
    write_rows(
        folder / "papers" / "citations.csv",
        [
            {"citing": f"{t}-{n}", "cited": f"{t}-{other}"}
            for t, n in names
            for other in range(max(0, n - 4), n)
        ],
    )
    write_rows(
        folder / "claims" / "corpus.jsonl",
        [{"_id": f"d{t}-{n}", "title": "", "text": topical(t, 200 + n)} for t, n in names],
    )
    write_rows(
        folder / "claims" / "queries.jsonl",
        [{"_id": f"q{t}", "text": topical(t, 300, 2)} for t in range(TOPICS)],
    )
    qrels = folder / "claims" / "qrels" / "test.tsv"
    qrels.parent.mkdir()
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"q{t}\td{t}-{n}\t1" for t, n in names if n < 10]
    qrels.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_rows(folder / "plain.jsonl", [{"text": topical(t, 400 + n, 24)} for t, n in names])
    return folder
