"""Links between documents as supervision."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from docsplit.corpora.fields import DataError
from tests.training.conftest import WORDS
from training.errors import CheckpointError, SettingsError
from training.links import FIRST, LAST, HardNegatives, LinkGraph, open_graph, passage
from training.processes import Processes
from training.settings import Settings
from training.tokens import TokenCache
from training.trainer.loop import TrainingRun
from training.trainer.validation import embed_texts

MakeSettings = Callable[..., Settings]

TOPICS = 6
LINKS = {"view": "links", "mlm_weight": 0.0}


@pytest.fixture
def linked(tmp_path: Path) -> dict[str, Any]:
    """Settings of data: a document of topic t cites one of topic t + 6, which has other words."""
    draw = random.Random(3)
    share = len(WORDS) // (2 * TOPICS)
    documents = []
    for number in range(120):
        topic = number % (2 * TOPICS)
        words = WORDS[topic * share :][:share]
        sentences = [" ".join(draw.choices(words, k=6)).capitalize() + "." for _ in range(6)]
        documents.append({"id": f"d{number}", "text": " ".join(sentences), "by": f"a{number // 2}"})
    lines = "\n".join(map(json.dumps, documents))
    (tmp_path / "linked.jsonl").write_text(lines, encoding="utf-8")
    pairs = [(n, n + TOPICS) for n in range(114) if n % (2 * TOPICS) < TOPICS]
    rows = ["citing,cited", *(f"d{one},d{other}" for one, other in pairs), "d0,unknown"]
    (tmp_path / "links.csv").write_text("\n".join(rows), encoding="utf-8")
    return {
        "path": str(tmp_path / "linked.jsonl"),
        "links": str(tmp_path / "links.csv"),
        "held_out": 0.0,
        "near_duplicates": 0.0,
    }


def opened(settings: Settings) -> TrainingRun:
    return TrainingRun(settings, Processes(cpu=True))


def names(run: TrainingRun) -> list[str]:
    return run.cache.names(range(len(run.cache)))


def test_a_graph_counts_a_pair_once_and_in_both_directions() -> None:
    graph = LinkGraph.of([(4, 1), (1, 4), (4, 4 + 3), (4, 1)])
    assert graph.links == 2
    assert graph.documents.tolist() == [1, 4, 7]
    assert {one: found.tolist() for one, found in graph.neighbours.items()} == {
        1: [4],
        4: [1, 7],
        7: [4],
    }
    related = graph.related([1, 4], [1, 4, 7, 9])
    assert related.tolist() == [[True, True, False, False], [True, True, True, False]]
    assert graph.digest == LinkGraph.of([(1, 4), (7, 4)]).digest != LinkGraph.of([(1, 4)]).digest


def test_links_to_missing_documents_and_between_one_author_are_left_out(
    make_settings: MakeSettings, linked: dict[str, Any], tmp_path: Path
) -> None:
    run = opened(make_settings(data=linked, objective=LINKS))
    graph = run._opened.graph
    assert graph is not None
    assert graph.counts == {"used": 60, "outside": 1, "same_author": 0}

    # d0 and d1 have one author, and so have d12 and d13
    lines = Path(linked["links"]).read_text(encoding="utf-8")
    Path(linked["links"]).write_text(lines + "\nd0,d1\nd13,d12", encoding="utf-8")
    for field, counts in (
        (None, {"used": 62, "outside": 1, "same_author": 0}),
        ("by", {"used": 60, "outside": 1, "same_author": 2}),
    ):
        settings = make_settings(data=linked | {"author_field": field}, objective=LINKS)
        found = open_graph(Path(linked["links"]), settings.data, run.cache, run.train)
        assert found.counts == counts

    Path(linked["links"]).write_text("citing,cited\nd0,d1", encoding="utf-8")
    with pytest.raises(DataError, match=r"no link between two documents of .* 1 pairs share an"):
        open_graph(Path(linked["links"]), settings.data, run.cache, run.train)


def test_the_table_of_links_may_be_in_the_folder_of_the_documents(
    make_settings: MakeSettings,
    linked: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("path", "links"):
        Path(linked[name]).rename(folder / Path(linked[name]).name)
    monkeypatch.chdir(tmp_path)
    places = {"path": str(folder), "links": "folder/links.csv", "author_field": "by"}
    settings = make_settings(data=linked | places, objective=LINKS)
    run = opened(settings)
    assert (len(run.cache), run._opened.graph and run._opened.graph.links) == (120, 60)
    # other links are no other documents
    with (folder / "links.csv").open("a", encoding="utf-8") as stream:
        stream.write("\nd0,d12")
    assert opened(settings).cache.root == run.cache.root


@pytest.mark.parametrize("authors", ["A. One; B. Two", ["B. Two", "A. One"], " b. two;"])
def test_authors_are_a_list_or_a_text_with_semicolons(
    make_settings: MakeSettings, tmp_path: Path, tiny_cache: TokenCache, authors: object
) -> None:
    stated: dict[str, dict[str, object]] = {"x": {"by": authors}, "y": {"by": ["B. TWO"]}, "z": {}}
    rows = [{"id": name, "text": "Ba. Be.", **by} for name, by in stated.items()]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "a.csv").write_text("citing,cited\nx,y\nx,z", encoding="utf-8")
    data = {"path": str(tmp_path / "a.jsonl"), "links": "a.csv", "author_field": "by"}
    settings = make_settings(data=data, objective=LINKS)
    found = open_graph(tmp_path / "a.csv", settings.data, tiny_cache, [0, 1, 2])
    assert found.counts == {"used": 1, "outside": 0, "same_author": 1}
    assert found.documents.tolist() == [0, 2]


def test_authors_of_another_type_are_refused(
    make_settings: MakeSettings, tmp_path: Path, tiny_cache: TokenCache
) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "x", "text": "Ba.", "by": 7}', encoding="utf-8")
    (tmp_path / "a.csv").write_text("citing,cited\nx,y", encoding="utf-8")
    data = {"path": str(tmp_path / "a.jsonl"), "links": "a.csv", "author_field": "by"}
    settings = make_settings(data=data, objective=LINKS)
    with pytest.raises(DataError, match=r"x: authors must be a text or a list of texts"):
        open_graph(tmp_path / "a.csv", settings.data, tiny_cache, [0, 1, 2])


@pytest.fixture
def tiny_cache() -> TokenCache:
    class Named:
        def names(self, documents: list[int]) -> list[str]:
            return ["xyz"[one] for one in documents]

    return Named()  # type: ignore[return-value]


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    room=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_a_passage_fills_the_room_with_neighbouring_sentences(
    lengths: list[int], room: int, seed: int
) -> None:
    document = [np.full(length, number) for number, length in enumerate(lengths)]
    found = passage(document, room, np.random.default_rng(seed))
    first = int(found[0][0])
    assert [int(one[0]) for one in found] == list(range(first, first + len(found)))
    taken = sum(map(len, found))
    assert taken >= min(room, sum(lengths))
    # no sentence too many
    assert taken - len(found[-1]) < room


def test_passages_begin_at_all_places() -> None:
    document = [np.full(5, number) for number in range(10)]
    rng = np.random.default_rng(0)
    begins = {int(passage(document, 20, rng)[0][0]) for _ in range(200)}
    assert begins == set(range(7))


def test_pairs_are_linked_and_linked_documents_are_no_negatives(
    make_settings: MakeSettings, linked: dict[str, Any]
) -> None:
    asked = LINKS | {"hard_negatives": 2}
    run = opened(make_settings(data=linked, objective=asked, optimisation={"batch_size": 40}))
    graph = run._opened.graph
    assert graph is not None
    documents = run._order[0]
    batch = run.preparation.batch(0, documents)
    assert batch.views == 2
    assert batch.negatives == 80
    assert set(batch.row_view.tolist()) == set(range(160))
    assert batch.left_out is not None
    assert batch.left_out.shape == (40, 120)
    drawn = [run.preparation._draw(one, np.random.default_rng([0, 0, one])) for one in documents]
    partners = [one.partner for one in drawn]
    assert all(b in graph.neighbours[a] for a, b in zip(documents, partners, strict=True))
    others = partners + [number for one in drawn for number, _ in one.negatives]
    for row, one in enumerate(documents):
        for column, other in enumerate(others):
            no_negative = row != column and (other == one or other in graph.neighbours[one])
            assert bool(batch.left_out[row, column]) == no_negative
    assert batch.left_out.any()


def test_hard_negatives_resemble_the_document_and_are_not_linked_to_it(
    make_settings: MakeSettings, linked: dict[str, Any], tmp_path: Path
) -> None:
    run = opened(make_settings(data=linked, objective=LINKS | {"hard_negatives": 3}))
    graph = run._opened.graph
    assert graph is not None
    held = HardNegatives.load(tmp_path / "run" / "hard-negatives.npz")
    assert held.negatives.shape == (120, LAST - FIRST)
    for one in graph.documents.tolist():
        found = held.of(one)
        assert len(found) >= LAST - FIRST - len(graph.neighbours[one])
        assert not graph.related([one], found).any()
    # The nine other documents of a topic have ranks below 20, those of no topic in common follow.
    topics = [int(name[1:]) % (2 * TOPICS) for name in names(run)]
    same = [topics[one] == topics[other] for one in graph.documents for other in held.of(one)]
    assert np.mean(same) < 0.02


def test_links_bring_documents_together_that_share_no_words(
    make_settings: MakeSettings, linked: dict[str, Any]
) -> None:
    run = opened(
        make_settings(
            data=linked,
            objective=LINKS | {"hard_negatives": 2},
            optimisation={
                "batch_size": 24,
                "max_steps": 40,
                "learning_rate": 3e-3,
                "chunk_tokens": 8_192,
            },
        )
    )
    run.run()
    vectors = embed_texts(
        [run.cache.sentences(one) for one in range(len(run.cache))],
        run.encoder,
        run.preparation.specials,
        run.processes,
        max_tokens=64,
        windows=1,
        chunk_tokens=2_048,
    )
    topics = np.array([int(name[1:]) % (2 * TOPICS) for name in names(run)])
    assert mean_reciprocal_rank(vectors, topics, lambda topic: topic + TOPICS) > 0.8
    # the control: topics that the links do not connect
    assert mean_reciprocal_rank(vectors, topics, lambda topic: (topic + 1) % TOPICS + TOPICS) < 0.4


def mean_reciprocal_rank(
    vectors: torch.Tensor, topics: npt.NDArray[np.int64], answer: Callable[[int], int]
) -> float:
    """How soon documents find one of the topic that answers theirs; their own does not count."""
    scores = (vectors @ vectors.T).numpy()
    found = []
    for one in np.flatnonzero(topics < TOPICS):
        others = scores[one, topics != topics[one]]
        best = scores[one, topics == answer(int(topics[one]))].max()
        found.append(1 / (1 + (others > best).sum()))
    return float(np.mean(found))


def test_documents_without_links_get_the_other_views(
    make_settings: MakeSettings, linked: dict[str, Any]
) -> None:
    Path(linked["links"]).write_text("citing,cited\nd0,d6\nd1,d7", encoding="utf-8")
    objective = LINKS | {"mix": "docsplit", "mix_share": 0.25}
    run = opened(make_settings(data=linked, objective=objective))
    graph = run._opened.graph
    assert graph is not None
    assert len(run._opened.anchors) == 120
    kinds = {True: 0, False: 0}
    for one in range(120):
        for seed in range(40):
            drawn = run.preparation._draw(one, np.random.default_rng(seed))
            if one in graph.neighbours:
                kinds[drawn.partner != one] += 1
            else:
                assert drawn.partner == one
    assert kinds[True] + kinds[False] == 160
    assert 0.6 < kinds[True] / 160 < 0.9


def test_an_interrupted_run_goes_on_only_with_the_same_links(
    make_settings: MakeSettings, linked: dict[str, Any], tmp_path: Path
) -> None:
    def settings() -> Settings:
        return make_settings(data=linked, objective=LINKS, optimisation={"max_steps": 4})

    opened(settings()).run(stop_after=2)
    lines = Path(linked["links"]).read_text(encoding="utf-8")
    Path(linked["links"]).write_text(lines + "\nd0,d1", encoding="utf-8")
    with pytest.raises(CheckpointError, match="links was"):
        opened(settings()).run()
    Path(linked["links"]).write_text(lines, encoding="utf-8")
    assert opened(settings()).run().finished
    record = json.loads((tmp_path / "run" / "training.json").read_text(encoding="utf-8"))
    assert record["data"]["links"] == {"used": 60, "outside": 1, "same_author": 0}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"objective": {"view": "links"}}, "objective.view links needs data.links"),
        ({"data": {"links": "l.csv"}}, "objective.view links needs data.links"),
        ({"data": {"author_field": "by"}}, "author_field needs data.links"),
        ({"objective": {"mix": "links"}}, "name links as view"),
        ({"objective": {"hard_negatives": 3}}, "hard_negatives needs the view links"),
        (
            {"objective": {"view": "links", "loss": "nt_xent"}, "data": {"links": "l.csv"}},
            "loss must be infonce",
        ),
        (
            {
                "objective": {"view": "links"},
                "data": {"links": "l.csv"},
                "optimisation": {"cluster_size": 20},
            },
            "set objective.hard_negatives instead",
        ),
    ],
)
def test_settings_that_do_not_fit_links_are_refused(
    make_settings: MakeSettings, sections: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_settings(**sections)


def test_too_few_documents_are_refused(make_settings: MakeSettings, linked: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="more than the 120 linked training documents"):
        opened(make_settings(data=linked, objective=LINKS, optimisation={"batch_size": 121}))
    few = linked | {"limit": 20}
    with pytest.raises(SettingsError, match="among 20 training documents none has"):
        opened(make_settings(data=few, objective=LINKS | {"hard_negatives": 1}))
