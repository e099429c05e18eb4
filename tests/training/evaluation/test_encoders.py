"""Encoders with one interface return the original vectors and compute each text once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from benchmarks.rig.start_bundle import installed_start
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.corpora.fields import DataError
from docsplit.engines.choice import ArithmeticWish
from tests.conftest import Server, serving
from tests.training.conftest import make_documents
from training.encoder import open_start
from training.errors import SettingsError
from training.evaluation.encoders import (
    CachedEncoder,
    RandomVectors,
    Reading,
    ServiceEncoder,
    Store,
    TfIdf,
    Vectors,
    opened,
    split_name,
)
from training.evaluation.local_encoders import FolderEncoder
from training.settings import BackboneSettings
from training.tokens import split_sentences
from training.trainer.output import save_model


def texts(count: int = 6) -> list[str]:
    return [document["text"] for document in make_documents(count)]


def angles(one: Vectors, other: Vectors) -> Vectors:
    """1 less the cosine of each pair of unit vectors."""
    error: Vectors = 1 - (one.astype(np.float64) * other).sum(1)
    return error


class TestFolder:
    def test_a_short_text_gets_the_vector_of_sentence_transformers(self, tiny_model: Path) -> None:
        encoder = FolderEncoder(str(tiny_model), "tiny", 64)
        short = [split_sentences(text)[0] for text in texts()]
        with_theirs = SentenceTransformer(str(tiny_model)).encode(short, normalize_embeddings=True)
        assert encoder.encode(short, "whole") == pytest.approx(with_theirs, abs=1e-5)
        assert encoder.encode(short, "first") == pytest.approx(with_theirs, abs=1e-5)
        assert np.abs(encoder.encode(short[::-1], "whole") - with_theirs).max() > 0.01

    def test_a_long_text_is_the_weighted_mean_of_its_windows(self, tiny_model: Path) -> None:
        encoder = FolderEncoder(str(tiny_model), "tiny", 20)
        pieces = ["Bal bel bil bol bul bal bel bil bol bul.", "Dal del dil dol dul dal del dil."]
        [whole] = encoder.encode([" ".join(pieces)], "whole")
        first, second = encoder.encode(pieces, "whole")
        mean = 11 * first + 9 * second
        assert whole == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)
        # the text fills the first window completely
        [start] = encoder.encode([" ".join(pieces)], "first")
        [filled] = encoder.encode([pieces[0] + " Dal del dil dol dul dal del"], "first")
        assert start == pytest.approx(filled, abs=1e-5)
        assert np.abs(start - whole).max() > 0.01

    def test_the_revision_depends_on_what_changes_vectors(self, tiny_model: Path) -> None:
        revision = FolderEncoder(str(tiny_model), "tiny", 32).revision
        assert FolderEncoder(str(tiny_model), "other name", 32).revision == revision
        assert FolderEncoder(str(tiny_model), "tiny", 24).revision != revision

    def test_a_long_checkpoint_reads_in_one_window(self, tiny_model: Path, tmp_path: Path) -> None:
        settings = BackboneSettings(
            path=str(tiny_model), extend_to=160, attention_window=16, max_tokens=160
        )
        start = open_start(settings)
        save_model(start.encoder, start.tokenizer, 160, tmp_path / "long")
        for folder, same in ((tmp_path / "long", True), (tiny_model, False)):
            encoder = FolderEncoder(str(folder), folder.name)
            text = ["bal dem kir kol dus " * 20]
            [whole], [first] = (encoder.encode(text, reading) for reading in ("whole", "first"))
            assert np.allclose(whole, first, atol=1e-6) is same

    def test_a_window_too_short_is_refused(self, tiny_model: Path) -> None:
        with pytest.raises(SettingsError, match="leave no room in 2 tokens"):
            FolderEncoder(str(tiny_model), "tiny", 2)

    def test_a_window_beyond_the_models_positions_is_refused(
        self, tiny_model: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(SettingsError, match="--max-tokens 65 is more than the 64 positions"):
            FolderEncoder(str(tiny_model), "tiny", 65)
        folder = shutil.copytree(tiny_model, tmp_path / "beyond")
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 90}')
        long = ["bal dem kir kol dus " * 20]
        beyond, within = FolderEncoder(str(folder), "beyond"), FolderEncoder(str(folder), "in", 64)
        assert beyond.revision == within.revision
        assert np.isfinite(beyond.encode(long, "whole")).all()


def test_half_a_surrogate_pair_reads_as_the_replacement_character(
    tiny_model: Path, tmp_path: Path
) -> None:
    with opened(str(tiny_model), tmp_path, max_tokens=32) as encoder:
        broken, replaced = encoder.features(["Bal \ud83d bom.", "Bal \ufffd bom."])
    assert (broken == replaced).all()


class Counting:
    """An encoder that records its requests and can fail."""

    name, kind, revision = "counting", "test", "counting-1"

    def __init__(self, fail_after: int = 1000) -> None:
        self.details: dict[str, str] = {}
        self.asked: list[str] = []
        self._fail_after = fail_after

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        if len(self.asked) + len(texts) > self._fail_after:
            raise KeyboardInterrupt
        self.asked += texts
        return RandomVectors().encode([f"{reading} {text}" for text in texts], reading)


class TestCache:
    def test_no_text_is_computed_twice(self, tmp_path: Path) -> None:
        first = Counting()
        cached = CachedEncoder(first, Store(tmp_path, first.revision))
        rows = cached.features(["a", "b", "a", "c"])
        assert sorted(first.asked) == ["a", "b", "c"]
        assert np.array_equal(rows[0], rows[2])
        later = Counting()
        again = CachedEncoder(later, Store(tmp_path, later.revision))
        assert np.array_equal(again.features(["c", "a"]), rows[[3, 0]])
        assert later.asked == []
        assert again.pace() is not None

    def test_first_windows_do_not_count_for_the_pace(self, tmp_path: Path) -> None:
        encoder = Counting()
        cached = CachedEncoder(encoder, Store(tmp_path, encoder.revision))
        cached.features(["a"], "first")
        assert cached.pace() is None
        cached.features(["a"])
        assert cached.pace() is not None

    def test_readings_and_revisions_are_stored_separately(self, tmp_path: Path) -> None:
        encoder = Counting()
        cached = CachedEncoder(encoder, Store(tmp_path, encoder.revision))
        whole, first = cached.features(["a"]), cached.features(["a"], "first")
        assert encoder.asked == ["a", "a"]
        assert not np.array_equal(whole, first)
        other = CachedEncoder(encoder, Store(tmp_path, "counting-2"))
        other.features(["a"])
        assert len(encoder.asked) == 3

    def test_an_interruption_loses_one_group_at_most(self, tmp_path: Path) -> None:
        many = [f"text {number:03}" for number in range(150)]
        broken = Counting(fail_after=140)
        with pytest.raises(KeyboardInterrupt):
            CachedEncoder(broken, Store(tmp_path, broken.revision)).features(many)
        rest = Counting()
        CachedEncoder(rest, Store(tmp_path, rest.revision)).features(many)
        assert len(broken.asked) == 128
        assert sorted(broken.asked + rest.asked) == many

    def test_invalid_vectors_are_refused(self, tmp_path: Path) -> None:
        class Long(Counting):
            def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
                return 2 * super().encode(texts, reading)

        with pytest.raises(DataError, match="vectors have length"):
            CachedEncoder(Long(), Store(tmp_path, "long")).features(["a"])

    def test_a_damaged_cache_is_named(self, tmp_path: Path) -> None:
        Store(tmp_path, "one").close()
        [file] = tmp_path.glob("*.sqlite")
        file.write_bytes(b"no database" * 100)
        with pytest.raises(DataError, match="not a readable vector cache"):
            Store(tmp_path, "one")


class TestControls:
    def test_random_vectors_depend_only_on_the_text(self) -> None:
        rows = RandomVectors().encode(["a text", "a text", *texts(40)], "whole")
        cosines = rows @ rows.T
        assert cosines[0, 1] == pytest.approx(1.0)
        others = cosines[1:, 1:][np.triu_indices(41, 1)]
        assert np.abs(others).max() < 0.3
        assert others.std() == pytest.approx(384**-0.5, rel=0.15)

    def test_tf_idf_counts_the_words_of_its_texts(self) -> None:
        own = TfIdf().fitted(["red green", "red blue"])
        rows = own.features(["red", "green", "unknown", "red red red"]).toarray()
        assert rows.shape == (4, 3)
        assert rows[0] @ rows[1] == 0
        assert rows[2].tolist() == [0, 0, 0]
        assert rows[0] == pytest.approx(rows[3])
        with pytest.raises(ValueError, match="no windows"):
            own.features(["red"], "first")

    def test_tf_idf_counts_words_of_one_letter_if_there_are_no_others(self) -> None:
        own = TfIdf().fitted(["a b", "a 我"])
        assert own.features(["b", "我", "c"]).toarray().sum(axis=1).tolist() == [1, 1, 0]


class TestService:
    def test_vectors_equal_those_of_the_service(self, server: Server, peps: dict[str, str]) -> None:
        encoder = ServiceEncoder(server.url)
        documents = ["A short text.", peps["pep-8"][:3000]]
        readings: tuple[Reading, ...] = ("whole", "first")
        for reading in readings:
            body = {"inputs": documents, "truncate": reading == "first"}
            served = httpx.post(f"{server.url}/embed", json=body, timeout=60).json()
            assert encoder.encode(documents, reading) == pytest.approx(np.asarray(served), abs=1e-6)
        whole, first = (encoder.encode(documents, reading) for reading in readings)
        assert whole[0] == pytest.approx(first[0], abs=1e-6)
        assert np.abs(whole[1] - first[1]).max() > 0.01
        assert encoder.details["window"] == "512 tokens"

    def test_a_bundle_gives_the_vectors_of_the_service(
        self, server: Server, tmp_path: Path, peps: dict[str, str]
    ) -> None:
        documents = ["A short text.", peps["pep-8"][:3000]]
        service = ServiceEncoder(server.url)
        precision = service.details["arithmetic"].partition(",")[0]
        with opened(f"own={DEFAULT_BUNDLE}", tmp_path) as bundle:
            assert (bundle.name, bundle.kind) == ("own", "bundle")
            assert bundle.details["arithmetic"].startswith(f"{precision}, ")
            for reading in bundle.readings:
                served = service.encode(documents, reading)
                assert angles(bundle.features(documents, reading), served).max() < 1e-5
        # the control: another precision
        other: ArithmeticWish = "f32" if precision == "int8" else "int8"
        with opened(str(DEFAULT_BUNDLE), tmp_path, precision=other) as bundle:
            assert angles(bundle.features(documents, reading), served).min() > 1e-4

    def test_an_impossible_precision_is_refused(self, tmp_path: Path) -> None:
        refused = pytest.raises(SettingsError, match="precision fp16 needs CUDA")
        with refused, opened(str(DEFAULT_BUNDLE), tmp_path, precision="fp16"):
            pass

    def test_the_checkpoint_gives_similar_vectors(self, tmp_path: Path, start_bundle: Path) -> None:
        weights = FolderEncoder(installed_start(), "minilm", 512)
        documents = ["A short text.", "How do cats purr?"]
        ours = weights.encode(documents, "whole")
        with serving(tmp_path / "log", "--bundle", str(start_bundle)) as server:
            served = ServiceEncoder(server.url).encode(documents, "whole")
        assert (ours * served).sum(1).min() > 0.99
        assert (ours * served[::-1]).sum(1).max() < 0.5

    def test_a_refusal_names_its_reason(self, server: Server) -> None:
        with pytest.raises(SettingsError, match=r"/embed: 400 .*input 0 is empty"):
            ServiceEncoder(server.url).encode([""], "whole")

    def test_a_missing_service_is_reported(self) -> None:
        with pytest.raises(SettingsError, match="no answer"):
            ServiceEncoder("http://127.0.0.1:9")


def test_names() -> None:
    assert split_name("ours=runs/first/model") == ("ours", "runs/first/model")
    assert split_name("http://host:8080/?a=b") == (None, "http://host:8080/?a=b")
    assert split_name("models/a") == (None, "models/a")


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(SettingsError, match="give the folder of a bundle"),
        opened(str(tmp_path), tmp_path),
    ):
        pass
