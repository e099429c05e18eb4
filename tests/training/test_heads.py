"""Train heads offline, put them into a bundle, and serve them."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from docsplit.bundles.format import load
from tests.conftest import serving
from tests.index.conftest import call, upsert
from training.__main__ import main

KINDS = {
    "cooking": ["Simmer the soup.", "Bake the bread.", "Salt the rice.", "Fry the fish."],
    "football": ["The striker scored.", "A late penalty.", "The keeper saved it.", "Extra time."],
}
SUBJECTS = ["the parser", "type hints", "packaging", "async loops", "exceptions", "imports"]


@pytest.fixture
def bundle(tmp_path: Path, light: tuple[str, ...]) -> Path:
    """A copy of the bundle of words with linked files. A change replaces a file."""
    return Path(shutil.copytree(light[1], tmp_path / "bundle", copy_function=os.link))


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["text", "label"])
        rows.writerows((text, kind) for kind, texts in KINDS.items() for text in texts)
    return path


def write_papers(folder: Path) -> tuple[Path, Path]:
    """Documents that cite the earlier ones on their subject, and their links."""
    documents, links = folder / "papers.jsonl", folder / "links.csv"
    names = [f"{number}-{part}" for number in range(len(SUBJECTS)) for part in range(4)]
    with documents.open("w", encoding="utf-8") as lines:
        for name in names:
            number, part = map(int, name.split("-"))
            text = f"Proposal {part} on {SUBJECTS[number]}."
            lines.write(json.dumps({"id": name, "text": text}) + "\n")
    with links.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["citing", "cited"])
        rows.writerows((f"{n[0]}-{a}", n) for n in names for a in range(int(n[2]) + 1, 4))
    return documents, links


def test_heads_go_into_the_bundle_and_are_served(
    bundle: Path,
    labels: Path,
    light: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = load(bundle).manifest
    cache = ["--cache", str(tmp_path / "cache")]
    head = ["head", "--data", str(labels), "--bundle", str(bundle), "--name", "topics", *cache]
    assert main(head) == 0
    assert "2 labels" in capsys.readouterr().out
    documents, links = write_papers(tmp_path)
    papers = ["--documents", str(documents), "--links", str(links)]
    for inputs in ("vectors", "features"):
        flags = ["--bundle", str(bundle), "--inputs", inputs, *cache]
        assert main(["citation", *papers, *flags]) == 0
        assert load(bundle).manifest.heads["citation"].report["inputs"] == inputs
    after = load(bundle).manifest
    assert after.revision == before.revision
    assert load(Path(light[1])).manifest == before
    assert {name: made.kind for name, made in after.heads.items()} == {
        "topics": "classifier",
        "citation": "citation",
    }
    assert after.heads["topics"].labels == list(KINDS)
    with serving(tmp_path / "log", "--bundle", str(bundle)) as server:
        assert call(server, "GET", "/classifiers")["classifiers"] == ["topics"]
        said = call(server, "GET", "/classifiers/topics")
        assert said["bundled"]
        assert said["current"]
        assert said["labels"] == {"cooking": 4, "football": 4}
        # another training replaces the file of the head, which this service has not used yet
        labels.write_text("\n".join(labels.read_text().splitlines()[:-1]) + "\n")
        assert main(head) == 0
        texts = ["Bake the fish and salt it.", "The keeper saved a late penalty."]
        answer = call(server, "POST", "/classify", {"inputs": texts})
        assert [labels[0]["label"] for labels in answer] == list(KINDS)
        explained = call(server, "POST", "/classify", {"inputs": texts, "explain": True})
        assert [one["labels"] for one in explained] == answer
        # the same training over HTTP gives the same head
        examples = {
            "inputs": [text for texts in KINDS.values() for text in texts],
            "labels": [kind for kind, texts in KINDS.items() for _ in texts],
        }
        call(server, "PUT", "/classifiers/again", examples)
        again = call(server, "POST", "/classify", {"inputs": texts, "classifier": "again"})
        for one, other in zip(answer, again, strict=True):
            assert one[0]["score"] == pytest.approx(other[0]["score"], abs=1e-3)
        for method, path, body in (
            ("PUT", "/classifiers/topics", examples),
            ("POST", "/classifiers/topics/retrain", None),
            ("DELETE", "/classifiers/topics", None),
            ("GET", "/classifiers/topics/network", None),
        ):
            assert "bundle" in call(server, method, path, body, status=409)["error"]
        call(server, "PUT", "/indexes/papers", {}, status=201)
        upsert(server, "papers", *map(json.loads, documents.read_text().splitlines()))
        query = {"index": "papers", "id": "1-3", "mode": "citation", "top_k": 3}
        hits = call(server, "POST", "/similar", query)
        assert {hit["id"] for hit in hits} == {"1-0", "1-1", "1-2"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("text,label\n", "no rows"),
        ("text,kind\na,b\n", "no column label; there are text, kind"),
        ("text,label\na,x\nb,x\n", "one label"),
        ("text,label\na,x\nb,\n", "labels.csv:3"),
    ],
)
def test_unusable_labels_are_refused(
    bundle: Path, tmp_path: Path, content: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(content)
    before = (bundle / "bundle.json").read_bytes()
    assert main(["head", "--data", str(path), "--bundle", str(bundle), "--name", "topics"]) == 1
    assert reason in capsys.readouterr().err
    assert (bundle / "bundle.json").read_bytes() == before


@pytest.mark.parametrize("kind", ["head", "citation"])
def test_a_name_that_no_head_can_have_is_refused_before_the_work(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data" if kind == "head" else "--documents", "absent.csv"]
    with pytest.raises(SystemExit) as ended:
        main([kind, *data, "--bundle", "absent", "--name", "My topics"])
    assert ended.value.code == 2
    assert "--name: 'My topics' is no name of a head; give up to 63" in capsys.readouterr().err


def test_a_folder_without_a_bundle_is_named(
    labels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["head", "--data", str(labels), "--bundle", str(tmp_path), "--name", "x"]) == 1
    assert "is a bundle" in capsys.readouterr().err.replace(f"{tmp_path} ", "")
