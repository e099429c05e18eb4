"""Words and pairs of words of whole documents: their storage and the cosine between them."""

import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lancedb.index import FTS
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from docsplit.ranking import terms as bags
from docsplit.ranking.terms import BUCKETS, bag, cosines, count
from docsplit.ranking.words import words
from service.index import commits, maintenance
from service.index.commits import Upsert
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.maintenance import Maintainer
from service.index.query import passages, search
from service.index.query import words as compared
from service.index.query.passages import Form
from service.index.query.reading import Query
from service.index.query.words import Found, similarities
from service.index.rows import derived, schema
from service.index.rows.schema import indexed
from tests.conftest import Server
from tests.index.conftest import call, upsert
from tests.index.processes import Replicas, record, run

TEXTS = {
    "near": "Rivers carry boats; boats carry grain. Boats and rivers meet at the harbour wall.",
    "far": "The committee adopted a budget for roads, schools and the harbour.",
    "other": "A violin is tuned in fifths, and a guitar mostly in fourths, at the concert.",
}
COLUMNS = (derived.TERMS, derived.WORDS)
LONG = " ".join(f"filler{number}" for number in range(search.SHORT))
QUERY = f"Boats carry grain down rivers to the harbour wall. {LONG}"


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    """Its vectors hold the words."""
    return light_server


def reference(pairs: tuple[int, int]) -> list[float]:
    """The cosines between the query and the texts, as scikit-learn computes them."""
    vectorizer = CountVectorizer(
        tokenizer=lambda text: [one for one in words(text) if len(one) > 1],
        token_pattern=None,
        ngram_range=pairs,
    )
    counts = vectorizer.fit_transform([*TEXTS.values(), QUERY]).toarray()
    containing = (counts[:-1] > 0).sum(axis=0)
    idf = np.log1p((len(TEXTS) - containing + 0.5) / (containing + 0.5))
    weights = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * idf**2
    return [float(one) for one in cosine_similarity(weights[-1:], weights[:-1])[0]]


def test_the_cosine_is_that_of_scikit_learn() -> None:
    held = [bag(text) for text in TEXTS.values()]
    found = cosines(bag(QUERY), held, count(held).weights)
    assert found == pytest.approx(reference((1, 2)), abs=1e-5)
    # the control: without pairs it is another number
    assert found != pytest.approx(reference((1, 1)), abs=1e-3)
    assert cosines(bag(""), [*held, b""], count(held).weights).tolist() == [0] * 4


def test_a_bag_holds_the_most_frequent_features_and_is_bounded() -> None:
    text = " ".join(f"w{number}" for number in range(9000)) + " often" * 3
    held = bag(text)
    # some words share their bucket with a pair
    most = bags.WIDTH * bags.MOST_FEATURES
    assert most * 0.99 < len(held) <= most < 2**14
    places = bags.buckets(held)
    assert zlib.crc32(b"often") % BUCKETS in places
    # of features that occur once only words fit
    last = zlib.crc32(b"w8998"), zlib.crc32(b"w8999")
    assert (last[0] * 0x9E3779B1 % 2**32 ^ last[1]) % BUCKETS not in places


def test_scripts_without_blanks_have_runs_of_characters() -> None:
    text = "北京是首都 ภาษา हिन्दी state-of-the-art 中"
    assert list(words(text)) == [
        *map("".join, pairwise("北京是首都")),
        *("ภาษ", "าษา"),
        "हिन्दी",
        *("state", "of", "the", "art"),
        "中",
    ]


def test_a_damaged_value_and_one_of_another_text_count_as_missing() -> None:
    stored = derived.sealed_terms("boats and rivers", "a" * 32)
    assert derived.opened_terms(stored, "a" * 32 + ".checksums") == bag("boats and rivers")
    assert derived.opened_terms(stored, "b" * 32) is None
    assert derived.opened_terms(stored[:-1] + bytes([stored[-1] ^ 1]), "a" * 32) is None
    assert derived.opened_terms(b"", "a" * 32) is None


def test_search_by_a_long_text_and_by_a_short_one(server: Server, index: str) -> None:
    upsert(server, index, *({"id": name, "text": text} for name, text in TEXTS.items()))

    def found(text: str, mode: str = "words") -> list[Any]:
        hits = call(server, "POST", "/similar", {"index": index, "text": text, "mode": mode})
        return [(hit["id"], hit["score"]) for hit in hits]

    scores = dict(zip(TEXTS, reference((1, 2)), strict=True))
    assert found(QUERY)[0] == ("near", pytest.approx(scores["near"], abs=1e-4))
    assert found(QUERY, "hybrid")[0][0] == "near"
    # BM25 of a short query is above 1, which no cosine is
    [best, *_] = found("Which boats carry grain?")
    assert best[0] == "near"
    assert best[1] > 1
    upsert(server, index, {"id": "far", "text": TEXTS["near"]})
    assert dict(found(QUERY))["far"] == dict(found(QUERY))["near"]


def test_a_chinese_text_finds_a_similar_one(server: Server, index: str) -> None:
    near = "长江是中国最长的河流，船只沿江运送粮食和煤炭，港口城市因此繁荣。"
    texts = {"near": near, "far": "小提琴按五度调弦，吉他多按四度调弦，音乐会在晚上开始。"}
    upsert(server, index, *({"id": name, "text": text} for name, text in texts.items()))
    others = "".join(chr(0x4E00 + 7 * number) for number in range(search.SHORT))
    query = "船只沿江运送粮食，港口城市的商人在河流两岸卸下煤炭。" + others
    body = {"index": index, "text": query, "mode": "words"}
    [first, *_] = call(server, "POST", "/similar", body)
    assert first["id"] == "near"
    assert 0 < first["score"] < 1


def without(made: pa.Schema) -> pa.Schema:
    return pa.schema([one for one in made if one.name not in COLUMNS], made.metadata)


async def former(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> tuple[Indexes, Index]:
    """An index of an earlier version, without the column, with documents."""
    a = await replicas.open("a")
    create = schema.create
    with monkeypatch.context() as patch:
        patch.setattr(
            schema,
            "create",
            lambda *given: without(create(*given)),
        )
        await a.create("x", {})
    index = await a.open("x")
    assert derived.TERMS not in index.schema.names
    await index.put([record(name, text) for name, text in TEXTS.items()])
    return a, index


async def compare(index: Index) -> list[float]:
    columns = ["id", "digest"]
    rows = (await index.table.query().select(columns).with_row_id().to_arrow()).to_pylist()
    found = {row["id"]: Found(row["_rowid"], row["digest"]) for row in rows}
    scores = await similarities(index, bag(QUERY), {name: found[name] for name in TEXTS})
    return [float(one) for one in scores]


def test_a_former_table_is_searched_and_filled(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        a, index = await former(replicas, monkeypatch)
        assert await compare(index) == pytest.approx(reference((1, 2)), abs=1e-5)
        assert await maintenance.add(index)
        upgraded = await a.open("x")
        assert not await maintenance.add(upgraded)
        # a request that began before
        rows = await index.rows([record("far", TEXTS["near"])])
        await commits.write(upgraded, [Upsert(rows)])
        monkeypatch.setattr(compared, "LACKING", 0)
        upgraded.vocabulary.computed.clear()
        assert await compare(upgraded) == [0, 0, 0]
        assert not await maintenance.complete(upgraded)
        noted: list[str] = []
        maintainer = Maintainer(a, noted.append)  # type: ignore[arg-type]
        maintainer.start()
        await maintainer._started[0]
        await maintainer.close()
        assert await maintenance.complete(upgraded)
        assert await maintenance.fill(upgraded) == 0
        scores = await compare(upgraded)
        assert scores[1] == scores[0] > 0
        # a damaged value counts as missing
        await upgraded.table.update({"terms": b"damaged"}, where="id = 'near'")
        assert (await compare(upgraded))[:2] == [0, scores[1]]

    scenario(tmp_path)


def test_a_former_index_over_words_is_read_until_the_new_one_is_complete(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(index: Index, text: str) -> list[str]:
        query, form = Query(np.array([1, 0, 0, 0], dtype=np.float32), text), Form(1, 1, 100)
        hits = await search.words(index, query, 1, None)
        parts = await passages.search(index, query, "words", form, None)
        return [one.id for one in hits] + [one.id for one in parts]

    async def stored(index: Index) -> list[Any]:
        columns = ["id", "digest", "text", "vector", "windows", "updated"]
        rows = (await index.table.query().select(columns).to_arrow()).to_pylist()
        return sorted(rows, key=lambda row: str(row["id"]))

    @run
    async def scenario(replicas: Replicas) -> None:
        a, index = await former(replicas, monkeypatch)
        await index.table.create_index("text", config=FTS(base_tokenizer="icu/split"))
        await index.put([record("new", "データベースを設計する。")])
        before = await stored(index)
        assert await found(index, "violin") == ["other", "other"]
        assert await found(index, "データベース") == []
        await maintenance.add(index)
        upgraded = await a.open("x")
        assert await found(upgraded, "violin") == ["other", "other"]
        assert await maintenance.fill(upgraded) == 4
        # one that was open before goes on
        for open_one in (upgraded, index, await a.open("x")):
            assert await found(open_one, "violin") == ["other", "other"]
            assert await found(open_one, "データベース") == ["new", "new"]
        assert await stored(upgraded) == before
        held = await indexed(upgraded.table)
        assert derived.WORDS in held
        assert "text" not in held

    scenario(tmp_path)


def test_filling_never_replaces_a_newer_document(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @run
    async def scenario(replicas: Replicas) -> None:
        a, index = await former(replicas, monkeypatch)
        await maintenance.add(index)
        upgraded, other = await a.open("x"), await a.open("x")
        read = Index.sound

        async def late(index: Index, *given: Any) -> Any:
            found = await read(index, *given)
            await other.put([record("near", "a newer text")])
            return found

        monkeypatch.setattr(Index, "sound", late)
        assert await maintenance.fill(upgraded) == 2
        monkeypatch.setattr(Index, "sound", read)
        assert (await upgraded.get("near")).text == "a newer text"
        assert (await upgraded.get("far")).text == TEXTS["far"]

    scenario(tmp_path)
