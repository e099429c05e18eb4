"""Tasks on synthetic data: encoders that see the topics score, controls are at chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docsplit.corpora.catalogue import discover
from docsplit.corpora.fields import Fields
from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from export.tasks import Retrieval as Export
from tests.training.evaluation.conftest import TOPICS
from training.evaluation.encoders import (
    CachedEncoder,
    RandomVectors,
    Reading,
    Representation,
    Store,
    Vectors,
    opened,
)
from training.evaluation.tasks import TASKS
from training.evaluation.tasks.labelled import BUCKETS, bucket_of, by_perceptron, split_pairs
from training.evaluation.tasks.task import Measured, Options, UnfitError
from training.evaluation.tasks.texts import repeated, similarities, span_pairs

OPTIONS = Options(draws=3, shots=(1, 5), epochs=5, steps=150, copies=(2, 10), sample=60)


@pytest.fixture(scope="module")
def sets(data: Path) -> dict[str, AnySet]:
    return {found.name: found.load() for found in discover([data], Fields())}


@pytest.fixture(scope="module")
def model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Representation]:
    """A tiny model with random weights. Its mean of token states separates topics by words."""
    with opened(str(tiny_model), tmp_path_factory.mktemp("cache"), max_tokens=32) as opening:
        yield opening


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Representation:
    encoder = RandomVectors(128)
    return CachedEncoder(encoder, Store(tmp_path_factory.mktemp("cache"), encoder.revision))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Representation]:
    with opened("tf-idf", tmp_path_factory.mktemp("cache")) as opening:
        yield opening


def figures(task: str, representation: Representation, data: Any) -> dict[str, float]:
    measured: Measured = TASKS[task].run(representation, data, OPTIONS)
    found = {name: figure.value for name, figure in measured.figures.items()}
    check_items(task, measured, found)
    return found


def check_items(task: str, measured: Measured, found: dict[str, float]) -> None:
    """The kept outcomes have the figures as their means."""
    kept = measured.items
    if TASKS[task].main in found:
        assert kept is not None
        assert TASKS[task].main in kept.outcomes
    if kept is not None:
        for name, outcomes in [*kept.outcomes.items(), *kept.draws.items()]:
            assert np.mean(outcomes) == pytest.approx(found[name], abs=1e-5)
        assert len(set(map(len, kept.outcomes.values()))) == 1


CHANCE = 1 / TOPICS


def test_probe(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = figures("probe", model, sets["topics"])
    assert found["accuracy"] > 0.7
    assert found["macro_f1"] > 0.7
    assert found["shuffled_accuracy"] < 0.55
    assert figures("probe", noise, sets["topics"])["accuracy"] < 0.5
    counted = figures("probe", words, sets["topics"])
    assert counted["accuracy"] > 0.95
    assert counted["shuffled_accuracy"] < 0.55


def test_few_shot(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = figures("few-shot", model, sets["topics"])
    assert found["accuracy_5"] > found["accuracy_1"] > CHANCE
    assert found["accuracy_5"] > 0.5
    assert abs(figures("few-shot", noise, sets["topics"])["accuracy_5"] - CHANCE) < 0.12
    assert figures("few-shot", words, sets["topics"])["accuracy_5"] > 0.9


def test_few_shot_leaves_out_numbers_beyond_the_smallest_class(
    sets: dict[str, AnySet], words: Representation
) -> None:
    options = Options(draws=2, shots=(1, 31))
    measured = TASKS["few-shot"].run(words, sets["topics"], options)
    assert measured.series["accuracy"].x == [1.0]
    with pytest.raises(UnfitError, match="the smallest of --shots is 31"):
        TASKS["few-shot"].run(words, sets["topics"], Options(draws=2, shots=(31, 40)))


def test_a_split_by_document_shares_no_document(sets: dict[str, AnySet]) -> None:
    papers = sets["papers"]
    assert isinstance(papers, Linked)
    linked = {tuple(pair) for pair in papers.pairs.tolist()}
    split = split_pairs(papers, 0.4, seed=0)
    assert not set(split.train.ravel().tolist()) & set(split.test.ravel().tolist())
    for part in (split.train, split.test):
        pairs = [tuple(pair) for pair in part.tolist()]
        half = len(pairs) // 2
        assert all(pair in linked for pair in pairs[:half])
        assert not any(pair in linked or pair[::-1] in linked for pair in pairs[half:])
        assert all(a != b for a, b in pairs)
    assert split.test.tolist() != split_pairs(papers, 0.4, seed=1).test.tolist()


def test_citation_links(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = figures("citation-links", model, sets["papers"])
    assert found["cosine_accuracy"] > 0.7
    control = figures("citation-links", noise, sets["papers"])
    assert abs(control["cosine_accuracy"] - 0.5) < 0.12
    assert abs(control["product_accuracy"] - 0.5) < 0.12
    counted = figures("citation-links", words, sets["papers"])
    assert counted["cosine_accuracy"] > 0.8
    assert "product_accuracy" not in counted


def test_the_perceptron_learns_that_links_stay_within_a_topic(sets: dict[str, AnySet]) -> None:
    papers = sets["papers"]
    assert isinstance(papers, Linked)
    splits = [split_pairs(papers, 0.4, seed=seed) for seed in (0, 1)]
    draw = np.random.default_rng(0)
    topics = np.eye(8)[np.arange(len(papers.documents)) // 20]
    found = []
    for rows in (topics + 0.1 * draw.standard_normal(topics.shape), draw.standard_normal((80, 8))):
        unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        right = by_perceptron(unit, splits, True, Options(steps=300))
        found.append([float(one.mean()) for one in right])
    assert min(found[0]) > 0.75
    assert max(found[1]) < 0.7


def test_citation_retrieval(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = figures("citation-retrieval", model, sets["papers"])
    control = figures("citation-retrieval", noise, sets["papers"])
    counted = figures("citation-retrieval", words, sets["papers"])
    for name in ("mrr", "recall_10", "ndcg_10"):
        assert counted[name] > found[name] > control[name]
        assert found[f"mlp_{name}"] > control[f"mlp_{name}"]
    # any ranking shows 10 of the 79 others
    assert control["recall_10"] == pytest.approx(10 / 79, abs=0.06)


def test_retrieval(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = {
        r.name: figures("retrieval", r, sets["claims"])["ndcg_10"] for r in (model, noise, words)
    }
    assert found["random"] < 0.35 < found[model.name]
    assert found["tf-idf"] > found["random"]


def test_a_query_in_the_corpus_does_not_find_itself(words: Representation) -> None:
    """BEIR leaves the query out of its own ranking."""
    documents = ["bal bem bis", "bal bem dor", "kes kul kor"]
    data = Judged("counter", documents, documents[:1], [{1: 1.0}], itself={0: 0})
    assert figures("retrieval", words, data)["mrr"] == 1
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1], [1, 0]], dtype=np.float32)
    assert Export(data).figure(vectors) == 1


def test_elongation(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    measured = TASKS["elongation"].run(model, sets["plain"], OPTIONS)
    assert measured.series["itself"].x == [1.0, 2.0, 10.0]
    assert measured.series["itself"].y[0] == pytest.approx(1.0, abs=1e-5)
    own = {name: figure.value for name, figure in measured.figures.items()}
    check_items("elongation", measured, own)
    assert own["self_lowest"] <= own["self"] <= 1.0
    assert own["self"] > 0.9
    control = figures("elongation", noise, sets["plain"])
    assert abs(control["self"]) < 0.1
    assert abs(control["drift_unrelated"]) < 0.05
    # logarithmic counts of words that occur once and twice grow similarly
    assert figures("elongation", words, sets["plain"])["self"] > 0.95


def test_a_text_repeated() -> None:
    assert repeated("a b", 3) == "a b a b a b"


def test_length(sets: dict[str, AnySet], model: Representation, words: Representation) -> None:
    for data in ("topics", "papers"):
        measured = TASKS["length"].run(model, sets[data], OPTIONS)
        found = {name: figure.value for name, figure in measured.figures.items()}
        assert found["difference"] == pytest.approx(found["whole"] - found["first"])
        assert sum(measured.counts.values()) == (60 if data == "topics" else 76)
    assert set(figures("length", words, sets["topics"])) == {"whole"}


def test_buckets_equal_those_of_the_papers() -> None:
    lengths = {50: "0-50", 51: "51-100", 100: "51-100", 300: "201-300", 301: "301-600"}
    found = bucket_of(["w " * words for words in lengths])
    assert [BUCKETS[i] for i in found] == list(lengths.values())


def test_geometry(sets: dict[str, AnySet], model: Representation, noise: Representation) -> None:
    own = figures("geometry", model, sets["plain"])
    assert own["inner"] > own["inter"]
    assert own["intra"] > 0
    control = figures("geometry", noise, sets["plain"])
    assert control["inner"] == pytest.approx(control["inter"], abs=0.01)
    assert control["intra"] == pytest.approx(0, abs=0.02)
    assert control["anisotropy"] == pytest.approx(0, abs=0.01)
    assert control["alignment"] == pytest.approx(2, abs=0.1)
    assert own["alignment"] < control["alignment"]
    assert own["uniformity"] > control["uniformity"]
    assert own["isotropy"] < control["isotropy"] <= 1


def test_sentence_similarity_by_hand() -> None:
    rows = np.asarray([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    # pairs (0, 1) within, (0, 2) and (1, 2) between
    assert similarities(rows, np.asarray([0, 0, 1])) == (0.0, 0.5)


def test_same_document(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = {
        r.name: figures("same-document", r, sets["plain"])["accuracy"]
        for r in (model, noise, words)
    }
    assert found[model.name] > 0.65
    assert found["tf-idf"] > 0.65
    assert abs(found["random"] - 0.5) < 0.12


class Known:
    """Gives texts with one first word the same direction. It remembers what it has encoded."""

    name, kind, revision = "known", "test", "known"

    def __init__(self, words: dict[str, int]) -> None:
        self._words = words
        self.details: dict[str, str] = {}
        self.texts: set[str] = set()

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        del reading
        self.texts |= set(texts)
        rows = [self._words[text.split()[0]] for text in texts]
        return np.asarray(np.eye(64)[rows], dtype=np.float32)


def by_known(
    tmp_path: Path, words: dict[str, int], documents: list[str], seed: int = 0
) -> tuple[Measured, set[str]]:
    encoder = Known(words)
    store = Store(tmp_path / str(len(list(tmp_path.iterdir()))), "known")
    data = Documents("known", documents)
    measured = TASKS["halves"].run(CachedEncoder(encoder, store), data, Options(seed=seed))
    store.close()
    return measured, encoder.texts


def test_halves_of_known_vectors(tmp_path: Path) -> None:
    documents = [" ".join(f"D{d} says {s}." for s in range(6)) for d in range(20)]
    given = [*documents, documents[3], "D4 has one sentence."]
    measured, _ = by_known(tmp_path, {f"D{d}": d for d in range(20)}, given)
    assert measured.counts == {"documents": 20}
    assert [measured.figures[name].value for name in ("mrr", "accuracy")] == [1.0, 1.0]
    # all vectors equal: the own half is first for one document, second for one, and so on
    measured, _ = by_known(tmp_path, {f"D{d}": 0 for d in range(20)}, given)
    assert measured.figures["accuracy"].value == pytest.approx(1 / 20)
    assert measured.figures["mrr"].value == pytest.approx(sum(1 / n for n in range(1, 21)) / 20)


def test_halves_depend_only_on_the_document_and_the_seed(tmp_path: Path) -> None:
    words = {f"D{d}": d for d in range(9)}
    documents = [" ".join(f"D{d} says {s}." for s in range(6)) for d in range(9)]
    _, drawn = by_known(tmp_path, words, documents)
    _, reversed_order = by_known(tmp_path, words, documents[::-1])
    _, other_seed = by_known(tmp_path, words, documents, seed=1)
    assert len(drawn) == 18
    assert drawn == reversed_order != other_seed


def test_halves(
    sets: dict[str, AnySet], model: Representation, noise: Representation, words: Representation
) -> None:
    found = {r.name: figures("halves", r, sets["plain"]) for r in (model, noise, words)}
    for name in ("mrr", "accuracy"):
        assert found["tf-idf"][name] > found[model.name][name] > found["random"][name]
    # the mean of 1 / rank over 60 candidates is .078
    assert found["random"]["mrr"] == pytest.approx(0.078, abs=0.06)


def test_spans_do_not_overlap() -> None:
    documents = [" ".join(f"{d}-{i}" for i in range(40 + 20 * d)) for d in range(8)]
    first, second = span_pairs(documents, 8, seed=0)
    for one, two in zip(first, second, strict=True):
        assert not set(one.split()) & set(two.split())
        assert one.split()[0].split("-")[0] == two.split()[0].split("-")[0]
    lengths = sorted(len(span.split()) for span in first)
    assert lengths == [20, 30, 40, 48, 48, 48, 48, 48]


@pytest.mark.parametrize("task", ["elongation", "geometry", "same-document", "halves"])
def test_unfit_sets_are_refused(task: str, noise: Representation) -> None:
    with pytest.raises(UnfitError, match="fewer than"):
        TASKS[task].run(noise, Documents("tiny", ["One."] * 5), OPTIONS)


def test_too_few_links(noise: Representation) -> None:
    tiny = Linked("tiny", ["One.", "Two.", "Three."], {0: frozenset({1})})
    with pytest.raises(UnfitError, match="too few links"):
        TASKS["citation-links"].run(noise, tiny, OPTIONS)


def test_the_seed_determines_the_numbers(sets: dict[str, AnySet], model: Representation) -> None:
    topics = sets["topics"]
    assert isinstance(topics, Labelled)
    runs = [
        TASKS["few-shot"].run(model, topics, Options(draws=2, shots=(2,), seed=seed, steps=50))
        for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
