"""Tasks that read parts of speech, with a rule-based spaCy pipeline."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy

from docsplit.corpora.sets import Documents
from tests.training.conftest import WORDS
from training.errors import SettingsError
from training.evaluation.command_line import main
from training.evaluation.encoders import TextsOnly, opened
from training.evaluation.local_encoders import FolderEncoder
from training.evaluation.tasks import TASKS
from training.evaluation.tasks.task import Options, UnfitError, every
from training.evaluation.tasks.texts import by_word, open_tagger, redundancy

RULES = {
    "cat": ("NOUN", "cat"),
    "cats": ("NOUN", "cat"),
    "Rome": ("PROPN", "Rome"),
    "chase": ("VERB", "chase"),
    "chases": ("VERB", "chase"),
    "old": ("ADJ", "old"),
}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A rule-based pipeline for the words above and for those of the tiny model."""
    made = spacy.blank("en")
    ruler: Any = made.add_pipe("attribute_ruler")
    for number, word in enumerate(WORDS):
        part = "VERB" if number % 10 == 0 else "NOUN" if number % 2 else "ADJ"
        ruler.add([[{"LOWER": word}]], {"POS": part, "LEMMA": word})
    for word, (part, lemma) in RULES.items():
        ruler.add([[{"LOWER": word.lower()}]], {"POS": part, "LEMMA": lemma})
    folder = tmp_path_factory.mktemp("pipeline")
    made.to_disk(folder)
    return str(folder)


def test_redundancy_by_hand() -> None:
    words = [("NOUN", "cat"), ("VERB", "chase"), ("NOUN", "cat"), ("DET", "a"), ("VERB", "cat")]
    assert redundancy(words) == pytest.approx(4 / 3)
    assert redundancy([("NOUN", "Rome"), ("PROPN", "Rome")]) == 2.0
    assert redundancy([("DET", "a")]) is None


def test_redundancy_by_length(pipeline: str) -> None:
    short, long = "Cats chase cats. A cat chases Rome.", "Old Rome. " + "and " * 60
    data = Documents("cats", [short, long, "Nothing here."])
    measured = TASKS["redundancy"].run(TextsOnly(), data, Options(spacy_model=pipeline))
    found = {name: figure.value for name, figure in measured.figures.items()}
    # cat three times, chase twice, Rome once
    assert found == pytest.approx({"words_50": 2.0, "words_100": 1.0, "all": 1.5})
    assert measured.counts["documents of 0-50 words"] == 1
    with pytest.raises(UnfitError, match="no nouns or verbs"):
        TASKS["redundancy"].run(
            TextsOnly(), Documents("none", ["Nothing here."]), Options(spacy_model=pipeline)
        )


def test_weights_of_words_by_hand() -> None:
    # "old cats chase": the second word has two tokens, the third is beyond the window
    words = [(0, 3, "ADJ"), (4, 8, "NOUN"), (9, 14, "VERB")]
    offsets = np.asarray([[0, 3], [4, 7], [7, 8]])
    weights = np.asarray([0.1, 0.2, 0.1], dtype=np.float32)
    found = dict(by_word(words, offsets, weights))
    assert found == pytest.approx({"adjectives": 0.5, "nouns": 1.5})


def test_attention_equals_that_of_the_model(tiny_model: Path) -> None:
    encoder = FolderEncoder(str(tiny_model), "tiny", 32)
    offsets, weights = encoder.first_token_attention("Bal bel bil.")
    assert offsets.tolist() == [[0, 3], [4, 7], [8, 11], [11, 12]]
    # the special tokens have the remaining weight
    assert 0 < weights.sum() < 1
    assert len(encoder.first_token_attention("bal " * 100)[1]) == 30


def test_attention(tiny_model: Path, pipeline: str, data: Path, tmp_path: Path) -> None:
    given = [f"tiny={tiny_model}", "--max-tokens", "32", "--data", str(data), "--sets", "plain"]
    given += ["--tasks", "attention,redundancy", "--spacy-model", pipeline, "--sample", "20"]
    assert main([*given, "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]) == 0
    found = {(r.encoder, r.task): r.measured for r in every(tmp_path / "out")}
    assert set(found) == {("tiny", "attention"), ("the texts", "redundancy")}
    kinds = found["tiny", "attention"].figures
    assert set(kinds) == {"nouns", "verbs", "adjectives"}
    assert all(0.5 < figure.value < 2 for figure in kinds.values())
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "\n| the texts | – |" not in report
    with opened("random", tmp_path) as noise:
        assert not TASKS["attention"].suits(noise)


def test_hanta_tags_by_context_and_needs_no_download() -> None:
    tagger = open_tagger("hanta")
    document = tagger("The old judges were reviewing  their contracts. They judge Rome!\n\n")
    found = {word.text: (word.pos_, word.lemma_) for word in document}
    assert found["judges"] == ("NOUN", "judge")
    assert found["judge"] == ("VERB", "judge")
    assert found["reviewing"] == ("VERB", "review")
    assert found["were"][0] == "AUX"
    assert found["old"][0] == "ADJ"
    assert found["Rome"][0] == "PROPN"
    measured = TASKS["redundancy"].run(
        TextsOnly(), Documents("cats", ["A cat saw cats."]), Options(spacy_model="hanta")
    )
    # cat twice, see once
    assert measured.figures["all"].value == 1.5


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="--spacy-model away: no such pipeline"):
        open_tagger("away")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda _: None)
        with pytest.raises(SettingsError, match=r"pip install 'docsplit\[linguistics\]'"):
            open_tagger("away")
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "HanTa" else name)
        with pytest.raises(SettingsError, match=r"pip install 'docsplit\[linguistics\]'"):
            open_tagger("hanta")
