"""DocSplit in closed form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from docsplit.corpora.fields import DataError, Fields
from training import derived
from training.__main__ import main
from training.derived import Floats, draw, fit, measure, reduced, split
from training.evaluation.encoders import Reading, Vectors
from training.evaluation.local_encoders import FolderEncoder
from training.tokens import split_sentences

FIELDS = Fields()


def texts(number: int) -> list[str]:
    return [
        f"Topic {n} is here. It is about {n * 7}. Nobody reads it. The end." for n in range(number)
    ]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    lines = [{"id": str(n), "text": text} for n, text in enumerate(texts(40))]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def noisy(seed: int, noise: float = 2.0) -> tuple[Floats, Floats]:
    """Halves that agree in all but the first eight dimensions, which are noise."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(400, 32)).astype(np.float32)
    halves = []
    for _ in range(2):
        changed = common + rng.normal(scale=0.3, size=common.shape).astype(np.float32)
        changed[:, :8] += rng.normal(scale=noise, size=(400, 8)).astype(np.float32)
        halves.append(unit(changed))
    return halves[0], halves[1]


def test_halves_have_every_sentence_once() -> None:
    text = texts(1)[0]
    first, second = split(text, 3)
    assert sorted(split_sentences(first) + split_sentences(second)) == sorted(split_sentences(text))
    assert split(text, 3) == (first, second)
    assert len({split(text, seed) for seed in range(20)}) > 3


def test_copies_are_drawn_once_and_the_draw_does_not_depend_on_the_order(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    drawn = texts(60)
    lines = [json.dumps({"id": str(n), "text": text}) for n, text in enumerate([*drawn, *drawn])]
    one.write_text("\n".join([*lines, json.dumps({"id": "short", "text": "One sentence"})]))
    other.write_text("\n".join(reversed(lines[:60])))
    first = draw(one, FIELDS, 50, 0)
    assert (len(first.fitting), len(first.held_out), first.read) == (45, 5, 121)
    pairs = first.fitting + first.held_out
    assert len(set(pairs)) == 50
    again = draw(other, FIELDS, 50, 0)
    assert (again.fitting, again.held_out) == (first.fitting, first.held_out)
    assert draw(other, FIELDS, 50, 1).fitting != first.fitting


def test_a_corpus_that_is_too_small_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text("\n".join(json.dumps({"id": text, "text": text}) for text in texts(19)))
    with pytest.raises(DataError, match="19 different documents"):
        draw(file, FIELDS, 50, 0)


def test_power_a_half_whitens_the_differences() -> None:
    first, second = noisy(0)

    def spread(weights: Floats) -> float:
        differences = (first - second) @ weights
        values = np.linalg.eigvalsh(differences.T @ differences)
        return float(values[-1] / values[0])

    assert spread(fit([(first, second)], 0.5, 1e-6)) == pytest.approx(1, abs=0.01)
    assert spread(np.eye(32, dtype=np.float32)) > spread(fit([(first, second)], 0.25, 1e-6)) > 3


def uneven() -> tuple[Floats, Floats]:
    """Pairs whose dimensions differ in variance."""
    rng = np.random.default_rng(0)
    scales = np.geomspace(1, 0.02, 32)
    first, second = (
        unit((rng.normal(size=(300, 32)) * scales).astype(np.float32)) for _ in range(2)
    )
    return first, second


def test_principal_components_keep_most_of_the_cosines() -> None:
    pair = uneven()
    kept = reduced([pair], np.eye(32, dtype=np.float32), 12)
    cosines = pair[0] @ pair[1].T
    short = unit(pair[0] @ kept) @ unit(pair[1] @ kept).T
    others = unit(pair[0] @ kept[::-1]) @ unit(pair[1] @ kept[::-1]).T
    assert np.abs(short - cosines).mean() < 0.1 * np.abs(others - cosines).mean()
    # in falling order, so a prefix is the best map of its length
    fewer = reduced([pair], np.eye(32, dtype=np.float32), 5)
    np.testing.assert_allclose(kept[:, :5], fewer, atol=1e-6)
    whole = reduced([pair], np.eye(32, dtype=np.float32), 32)
    np.testing.assert_allclose(whole @ whole.T, np.eye(32), atol=1e-5)


def test_a_rotation_spreads_the_variance_and_changes_no_cosine() -> None:
    pair, same = uneven(), np.eye(32, dtype=np.float32)
    vectors = np.concatenate(pair)
    ordered = vectors @ reduced([pair], same, 12)
    rotated, again, other = (
        vectors @ reduced([pair], same, 12, np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(rotated @ rotated.T, ordered @ ordered.T, atol=1e-5)
    np.testing.assert_array_equal(again, rotated)
    assert np.abs(other - rotated).max() > 0.01
    # the largest share of a dimension in the squared length
    shares = [np.square(v).mean(0).max() / np.square(v).sum(1).mean() for v in (ordered, rotated)]
    assert shares[1] < 0.6 * shares[0]


def test_shortened_vectors_are_those_of_the_folder(
    tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "short"
    command = ["whiten", str(tiny_model), str(corpus), "--output", str(out)]
    assert main([*command, "--power", "0", "--dimensions", "8", "--max-tokens", "32"]) == 0
    assert "matryoshka_dimensions" not in json.loads((out / "config.json").read_text())
    long = unit(SentenceTransformer(str(tiny_model), device="cpu").encode(texts(3)))
    short = SentenceTransformer(str(out), device="cpu").encode(texts(3))
    assert short.shape == (3, 8)
    assert np.abs(short @ short.T - long @ long.T).max() < 0.05


def test_prefixes_declare_the_lengths_that_serve_too(
    tiny_model: Path, corpus: Path, tmp_path: Path
) -> None:
    ordered = tmp_path / "ordered"
    command = ["whiten", str(tiny_model), str(corpus), "--output", str(ordered)]
    assert main([*command, "--power", "0", "--dimensions", "8", "--prefixes"]) == 0
    assert json.loads((ordered / "config.json").read_text())["matryoshka_dimensions"] == []


def test_every_corpus_counts_the_same() -> None:
    one, other = noisy(0), noisy(1, noise=0.1)
    thrice = (np.tile(one[0], (3, 1)), np.tile(one[1], (3, 1)))
    np.testing.assert_allclose(
        fit([one, other], 0.5, 0.05), fit([thrice, other], 0.5, 0.05), atol=1e-5
    )
    assert np.abs(fit([one, other], 0.5, 0.05) - fit([one], 0.5, 0.05)).max() > 0.1


def test_the_gain_is_that_of_documents_that_did_not_fit_the_map() -> None:
    gain = measure(noisy(1), fit([noisy(0)], 0.5, 0.05))
    assert gain.documents == 400
    assert gain.after > gain.before
    assert gain.interval[0] > 0
    none = measure(noisy(1), np.eye(32, dtype=np.float32))
    assert none.before == none.after


def test_the_result_is_the_encoder_and_the_map(
    tiny_model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "whitened"
    command = ["whiten", str(tiny_model), str(corpus), "--output", str(out), "--max-tokens", "32"]
    assert main([*command, "--power", "0.5"]) == 0
    assert "corpus.jsonl" in capsys.readouterr().out
    before = SentenceTransformer(str(tiny_model), device="cpu").encode(texts(3))
    after = SentenceTransformer(str(out), device="cpu")
    weights = after.state_dict()["3.linear.weight"].numpy()
    expected = unit(unit(before) @ weights.T)
    np.testing.assert_allclose(after.encode(texts(3)), expected, atol=1e-5)
    assert np.abs(expected - unit(before)).max() > 0.01
    assert after.max_seq_length == 32
    record = json.loads((out / "training.json").read_text())["whiten"]
    [facts] = record["corpora"]
    assert (facts["name"], facts["documents"]) == ("corpus.jsonl", 36)
    assert facts["held_out"]["documents"] == 4

    assert main(command) == 1
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--power", "0"], "--power must be above 0"),
        (["--power", "-1", "--dimensions", "8"], "--power must be above 0"),
        (["--ridge", "nan"], "--ridge must be above 0"),
        (["--prefixes"], "--prefixes needs --dimensions"),
        (["--documents", "5"], "--documents must be at least 20"),
        (["--seed", "-1"], "--seed must be 0 or more"),
    ],
)
def test_flags_out_of_range_are_refused(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["whiten", "nowhere", str(tmp_path), "--output", str(tmp_path / "out"), *flags]
    assert main(given) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("dimensions", ["0", "999"])
def test_dimensions_that_the_encoder_lacks_are_refused_before_the_documents_are_embedded(
    dimensions: str,
    tiny_model: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedded: list[str] = []
    encode = FolderEncoder.encode

    def counted(self: FolderEncoder, texts: Sequence[str], reading: Reading) -> Vectors:
        embedded.extend(texts)
        return encode(self, texts, reading)

    monkeypatch.setattr(FolderEncoder, "encode", counted)
    given = ["whiten", str(tiny_model), str(corpus), "--output", str(tmp_path / "out")]
    assert main([*given, "--max-tokens", "32", "--dimensions", dimensions]) == 1
    assert f"--dimensions must be 1 to 32, not {dimensions}" in capsys.readouterr().err
    assert len(embedded) <= 1


def test_a_window_of_no_tokens_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["whiten", "nowhere", str(tmp_path), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        main([*given, "--max-tokens", "0"])
    assert "--max-tokens: '0' is not a whole number above 0" in capsys.readouterr().err


def test_a_command_that_was_interrupted_while_it_wrote_can_be_repeated(
    tiny_model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "mapped"
    given = ["whiten", str(tiny_model), str(corpus), "--output", str(out), "--max-tokens", "32"]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(derived, "write_record", interrupted)
        assert main(given) == 130
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.jsonl", "mapped.vectors"}
    assert main(given) == 0
    assert (out / "training.json").is_file()
