"""The sets in a folder, and the messages about unreadable ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from docsplit.corpora.catalogue import discover
from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.reading import read_examples, read_labelled
from docsplit.corpora.sets import Documents, Judged, Labelled, Linked
from tests.training.evaluation.conftest import TOPICS, write_rows


def only(path: Path, **fields: object) -> object:
    [found] = discover([path], Fields(**fields))  # type: ignore[arg-type]
    return found.load()


def test_the_files_show_the_kind_of_a_set(data: Path) -> None:
    kinds = {found.name: found.kind for found in discover([data], Fields())}
    assert kinds == {"claims": Judged, "papers": Linked, "plain": Documents, "topics": Labelled}


def test_a_labelled_set(data: Path) -> None:
    topics = only(data / "topics.csv")
    assert isinstance(topics, Labelled)
    assert (len(topics.train), len(topics.test), len(topics.classes)) == (120, 60, TOPICS)
    assert np.bincount(topics.test_labels).tolist() == [15] * TOPICS
    assert not set(topics.train) & set(topics.test)


def test_a_limit_keeps_the_classes_in_proportion(data: Path) -> None:
    topics = only(data / "topics.csv", limit=20)
    assert isinstance(topics, Labelled)
    assert np.bincount(topics.train_labels).tolist() == [5] * TOPICS
    assert np.bincount(topics.test_labels).tolist() == [5] * TOPICS
    whole = only(data / "topics.csv")
    assert isinstance(whole, Labelled)
    assert topics.digest != whole.digest
    assert set(topics.train) < set(whole.train)


def test_a_set_without_split_is_split_by_digest(tmp_path: Path) -> None:
    rows = [{"text": f"Text number {i}.", "label": i % 2} for i in range(200)]
    write_rows(tmp_path / "a.jsonl", rows)
    write_rows(tmp_path / "b.jsonl", rows[::-1])
    first, second = only(tmp_path / "a.jsonl"), only(tmp_path / "b.jsonl")
    assert isinstance(first, Labelled)
    assert isinstance(second, Labelled)
    assert set(first.test) == set(second.test)
    assert 20 <= len(first.test) <= 60


def test_a_split_by_digest_trains_on_every_label(tmp_path: Path) -> None:
    rows = [{"text": f"Text number {i}.", "label": i % 2} for i in range(200)]
    write_rows(tmp_path / "common.jsonl", rows)
    # by their digests, about six of these labels are only in the test part
    write_rows(
        tmp_path / "rare.jsonl",
        rows + [{"text": f"Rare text {i}.", "label": f"rare {i}"} for i in range(30)],
    )
    common, rare = only(tmp_path / "common.jsonl"), only(tmp_path / "rare.jsonl")
    assert isinstance(common, Labelled)
    assert isinstance(rare, Labelled)
    assert list(rare.test) == list(common.test)
    assert (len(rare.train), len(rare.classes)) == (len(common.train) + 30, 32)
    assert set(rare.train_labels.tolist()) == set(range(32))


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    rows = [{"text": f"Text {i}", "label": i % 2, "split": "train"} for i in range(6)]
    rows += [{"text": f"Other {i}", "label": i % 2, "split": "test"} for i in range(4)]
    rows += [{"text": " . ", "label": 0, "split": "test"}]
    write_rows(tmp_path / "a.jsonl", rows)
    found = only(tmp_path / "a.jsonl")
    assert isinstance(found, Labelled)
    assert (found.left_out, len(found.test)) == (1, 4)


def test_parquet_and_columns_of_other_names(tmp_path: Path) -> None:
    table = {"body": ["One two."] * 5 + ["Three four."] * 5, "kind": ["a", "b"] * 5}
    table["split"] = ["train"] * 4 + ["test"] * 2 + ["train"] * 4
    pq.write_table(pa.table(table), tmp_path / "own.parquet")
    found = only(tmp_path / "own.parquet", text="body", label="kind")
    assert isinstance(found, Labelled)
    assert len(found.train) == 8
    with pytest.raises(DataError, match=r"own\.parquet: no column text; there are body.*--text-fi"):
        only(tmp_path / "own.parquet")


def test_a_linked_set(data: Path) -> None:
    papers = only(data / "papers")
    assert isinstance(papers, Linked)
    assert len(papers.documents) == TOPICS * 20
    assert papers.documents[0].startswith("Paper 0\n\n")
    assert len(papers.pairs) == sum(map(len, papers.links.values()))
    assert all(citing not in cited for citing, cited in papers.links.items())


def test_names_of_cited_documents_are_masked(tmp_path: Path) -> None:
    folder = tmp_path / "specs_cite"
    texts = ["See PEP 484, and pep-8 too.", "As in EIP-20 and `BIP 32`."]
    rows: list[dict[str, object]] = [
        {"id": str(i), "title": f"PEP {i}", "text": text} for i, text in enumerate(texts)
    ]
    write_rows(folder / "documents.jsonl", rows)
    write_rows(folder / "citations.csv", [{"citing": "0", "cited": "1"}])
    masked = only(folder)
    assert isinstance(masked, Linked)
    assert not any(digit in text for text in masked.documents for digit in "0123456789")
    [found] = discover([folder], Fields(), {"specs_cite": "nothing"})
    unmasked = found.load()
    assert "PEP 484" in unmasked.documents[0]


def test_the_form_of_beir(data: Path) -> None:
    claims = only(data / "claims")
    assert isinstance(claims, Judged)
    assert (len(claims.documents), len(claims.queries)) == (TOPICS * 20, TOPICS)
    assert [len(grades) for grades in claims.relevant] == [10] * TOPICS
    limited = only(data / "claims", limit=50)
    assert isinstance(limited, Judged)
    assert len(limited.documents) == 50
    answers = [limited.documents[d] for grades in limited.relevant for d in grades]
    assert sorted(answers) == sorted(claims.documents[d] for g in claims.relevant for d in g)


def test_a_query_that_is_a_document_is_known(tmp_path: Path) -> None:
    """As in ArguAna; an id by itself says nothing, where both are counted from 0."""
    corpus = [{"id": i, "title": "Title", "text": f"Text {i}"} for i in range(4)]
    write_rows(tmp_path / "c" / "corpus.jsonl", corpus)
    queries = [{"id": i, "text": text} for i, text in enumerate(["Text 0", "Other", "Text 2"])]
    write_rows(tmp_path / "c" / "queries.jsonl", queries)
    pairs = [(0, 1), (1, 2), (2, 2)]
    qrels: list[dict[str, object]] = [
        {"query_id": query, "doc_id": document, "score": 1} for query, document in pairs
    ]
    write_rows(tmp_path / "c" / "qrels.jsonl", qrels)
    found = only(tmp_path / "c")
    assert isinstance(found, Judged)
    # the third counts itself as an answer
    assert found.itself == {0: 0}
    assert found.without_themselves(np.ones((2, 4)), 1).min() == 1


def test_only_judgements_of_the_test_part_count(tmp_path: Path) -> None:
    write_rows(tmp_path / "c" / "corpus.jsonl", [{"id": i, "text": f"Text {i}"} for i in range(3)])
    write_rows(tmp_path / "c" / "queries.jsonl", [{"id": i, "text": f"Query {i}"} for i in "ab"])
    qrels = [
        {"query_id": "a", "doc_id": 0, "score": 1, "split": "test"},
        {"query_id": "a", "doc_id": 1, "score": 0, "split": "test"},
        {"query_id": "b", "doc_id": 2, "score": 1, "split": "train"},
        {"query_id": "a", "doc_id": 7, "score": 1, "split": "test"},
    ]
    write_rows(tmp_path / "c" / "qrels.jsonl", qrels)
    found = only(tmp_path / "c")
    assert isinstance(found, Judged)
    assert (list(found.queries), found.relevant, found.left_out) == (["Query a"], [{0: 1.0}], 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "a.jsonl:2: no valid JSON"),
        ("a.jsonl", "", "a.jsonl: holds no rows"),
        ("a.csv", 'text,label\n"a,b\n', "a.csv:2: no valid CSV"),
        # read otherwise, these cells would hold the rows that follow
        ("a.tsv", 'text\tlabel\n"a\t1\nb\t2\n', "a.tsv:3: no valid TSV"),
        ("a.tsv", 'text\tlabel\n"a" b\t1\nc\t2\n', "a.tsv:2: no valid TSV"),
        ("a.csv", "text,label\na,1\nb,1\n", "documents to train on"),
        ("a.csv", "text,label,split\na,1,train\nb,1,test\n", "the label '1'"),
        (
            "a.csv",
            "text,label,split\na,1,train\nb,2,train\nc,3,test\n",
            "only the test part has the label '3'",
        ),
        ("a.parquet", "no parquet", "no readable Parquet file"),
        ("a.txt", "text", "a.txt: unknown type of table; give a .parquet, .csv"),
    ],
)
def test_messages_name_the_fault(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message.replace(".", r"\.")):
        only(tmp_path / name)


def test_folders_without_sets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        discover([tmp_path / "away"], Fields())
    with pytest.raises(DataError, match="no set in it"):
        discover([tmp_path], Fields())
    write_rows(tmp_path / "a.jsonl", [{"text": "One."}])
    with pytest.raises(DataError, match="a second set named a"):
        discover([tmp_path, tmp_path / "a.jsonl"], Fields())


@pytest.mark.parametrize(
    ("query", "score", "message"),
    [
        ("One?", "high", "qrels.jsonl:1: the score must be a number"),
        ("One?", float("nan"), "qrels.jsonl:1: the score must be a number"),
        (None, 1, "queries.jsonl:1: field 'text' must be text"),
    ],
)
def test_judgements_need_queries_and_numbers(
    tmp_path: Path, query: str | None, score: object, message: str
) -> None:
    tables: dict[str, dict[str, object]] = {
        "corpus": {"id": "a", "text": "One."},
        "queries": {"id": "q", "text": query},
        "qrels": {"query_id": "q", "doc_id": "a", "score": score},
    }
    for name, row in tables.items():
        write_rows(tmp_path / "j" / f"{name}.jsonl", [row])
    with pytest.raises(DataError, match=message.replace(".", r"\.")):
        only(tmp_path / "j")


def test_examples_of_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["One.", "Two."], "label": [["a", "b"], []]}), path)
    assert read_examples(path, Fields()) == (["One.", "Two."], [["a", "b"], []])
    path = tmp_path / "a.tsv"
    path.write_text("body\tlabel\nOne.\t1\nTwo.\t\n")
    with pytest.raises(DataError, match=r"a\.tsv:3: a row needs its body and its label"):
        read_examples(path, Fields(text="body"))
    write_rows(tmp_path / "a.jsonl", [{"text": "2001-01-01", "label": 1}])
    assert read_examples(tmp_path / "a.jsonl", Fields()) == (["2001-01-01"], ["1"])
    write_rows(tmp_path / "b.jsonl", [{"text": "One.", "label": [1, 2]}])
    assert read_examples(tmp_path / "b.jsonl", Fields()) == (["One."], [["1", "2"]])
    further: list[tuple[object, str]] = [
        (["a", None], "is empty"),
        (["a", math.nan], "is empty"),
        (math.nan, "a row needs its text and its label"),
        ("a", "one label and others"),
    ]
    for label, message in further:
        rows: list[dict[str, object]] = [
            {"text": "One.", "label": ["a"]},
            {"text": "Two.", "label": label},
        ]
        write_rows(tmp_path / "c.jsonl", rows)
        with pytest.raises(DataError, match=message):
            read_examples(tmp_path / "c.jsonl", Fields())


def test_a_label_that_is_not_a_number_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    labels = [1.0, 0.0, math.nan, 1.0, math.nan, 0.0]
    parts = ["train", "train", "train", "test", "test", "test"]
    texts = [f"Text {number}." for number in range(6)]
    pq.write_table(pa.table({"text": texts, "label": labels, "split": parts}), path)
    found = read_labelled(path, "a", Fields())
    assert (found.classes, found.left_out) == (["0.0", "1.0"], 2)


def test_links_must_be_among_the_documents(tmp_path: Path) -> None:
    write_rows(tmp_path / "p" / "documents.jsonl", [{"id": "1", "text": "One."}])
    write_rows(tmp_path / "p" / "citations.csv", [{"citing": "1", "cited": "2"}])
    with pytest.raises(DataError, match="no pair of ids that are both in"):
        only(tmp_path / "p")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "one", "label": ["a", "b"]}], r"set\.jsonl:1: label is a list; a set has one"),
        ([{"text": "one", "label": {"a": 1}}], r"set\.jsonl:1: label is an object; a set has one"),
        (
            [{"text": f"text {i}", "label": f"label {i}"} for i in range(9)],
            "9 documents to train on and 0 to test on; give each label several different texts",
        ),
        (
            [{"text": f"text {i}", "label": i % 2, "split": "train"} for i in range(9)],
            "the column split must say train or test, or be left out",
        ),
    ],
)
def test_labels_that_make_no_set_are_refused(
    tmp_path: Path, rows: list[dict[str, object]], message: str
) -> None:
    write_rows(tmp_path / "set.jsonl", rows)
    with pytest.raises(DataError, match=message):
        only(tmp_path / "set.jsonl")


def judged(folder: Path, queries: list[tuple[str, str]], grades: list[tuple[str, int]]) -> object:
    """A set of two documents, a and b; each grade belongs to a query and the document a."""
    documents: list[dict[str, object]]
    documents = [{"id": name, "text": f"Document {name}."} for name in "ab"]
    write_rows(folder / "corpus.jsonl", documents)
    write_rows(folder / "queries.jsonl", [{"id": name, "text": text} for name, text in queries])
    qrels = [{"query_id": name, "doc_id": "a", "score": grade} for name, grade in grades]
    write_rows(folder / "qrels.jsonl", qrels)
    return only(folder)


def test_queries_without_words_are_left_out(tmp_path: Path) -> None:
    """An encoder without a score for one would find the first document."""
    found = judged(tmp_path, [("p", "document"), ("q", " ")], [("p", 1), ("q", 1)])
    assert isinstance(found, Judged)
    assert found.queries == ["document"]
    # the query and its judgement
    assert found.left_out == 2


def test_judgements_without_a_positive_are_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"with a score above 0 .* \(1 have a score of 0 or below\)"
    ):
        judged(tmp_path, [("p", "document")], [("p", 0)])


def test_an_id_of_two_texts_is_refused(tmp_path: Path) -> None:
    """Before, the last text replaced the others."""
    documents: list[dict[str, object]]
    documents = [{"id": "a", "text": text} for text in ("One.", "One.", "Two.")]
    write_rows(tmp_path / "documents.jsonl", [*documents[:2], {"id": "b", "text": "Three."}])
    write_rows(tmp_path / "citations.jsonl", [{"citing": "a", "cited": "b"}])
    found = only(tmp_path)
    assert isinstance(found, Linked)
    assert found.documents == ["One.", "Three."]
    write_rows(tmp_path / "documents.jsonl", documents)
    with pytest.raises(DataError, match=r"documents\.jsonl:3: a document before it has the id 'a'"):
        only(tmp_path)
