"""Segmentation, tokenisation and the cache on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import sentencex
from sentencex import segment
from transformers import PreTrainedTokenizerFast

from docsplit.corpora.documents import Document
from docsplit.corpora.fields import DataError
from docsplit.windowing.sentences import LONGEST_PARAGRAPH
from tests.training.conftest import MakeSettings, make_documents
from training import documents, tokens
from training.documents import read_documents
from training.errors import CheckpointError
from training.processes import Processes
from training.settings import DataSettings
from training.tokens import Specials, TokenCache, split_sentences, whole_text_tokenizer
from training.trainer.loop import TrainingRun


def open_cache(
    path: Path, tokenizer: PreTrainedTokenizerFast, folder: Path, **options: Any
) -> TokenCache:
    return documents.open_cache(DataSettings(path=str(path), cache=folder, **options), tokenizer)


def contents(cache: TokenCache) -> list[list[list[int]]]:
    return [[s.tolist() for s in cache.sentences(d)] for d in range(len(cache))]


def test_half_a_surrogate_pair_does_not_end_the_build(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    """JSON that was cut within an emoji holds one."""
    rows = [
        {"id": f"{n}", "text": f"Bal {half} bom. Dor."} for n, half in enumerate("\ud83d\ufffd")
    ]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    one, other = contents(open_cache(tmp_path / "d.jsonl", tokenizer, tmp_path, near_duplicates=0))
    assert one == other
    assert split_sentences("Bal \ud83d bom. Dor 😀.") == ["Bal \ufffd bom.", "Dor 😀."]


def test_a_run_does_not_go_on_with_other_documents(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    documents = make_documents(30)

    def run_on(rows: list[dict[str, Any]]) -> TrainingRun:
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return TrainingRun(make_settings(data={"path": str(path)}), Processes(cpu=True))

    run_on(documents).run(stop_after=1)
    with pytest.raises(CheckpointError, match=r"settings \(the documents, .* changed\)"):
        run_on(documents[1:])


def test_sentences_keep_abbreviations_together() -> None:
    text = (
        "Dr. Smith went to Washington, D.C. on Jan. 5th. She met Mr. J. Doe (cf. Fig. 3).\n\n"
        "It costs $3.50 per kg, e.g. today. No way!"
    )
    assert split_sentences(text) == [
        "Dr. Smith went to Washington, D.C. on Jan. 5th.",
        "She met Mr. J. Doe (cf. Fig. 3).",
        "It costs $3.50 per kg, e.g. today.",
        "No way!",
    ]
    assert split_sentences(" \n\n ") == []


def test_sentencex_gets_no_long_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes quadratic time for some, such as Chinese ones: 23 s for 192,000 characters."""
    lengths = []

    def counted(language: str, text: str) -> Iterable[str]:
        lengths.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(tokens, "segment", counted)
    monkeypatch.setattr(sentencex, "segment", counted)
    assert split_sentences("我们的语言。" * 4000 + "\n\nE.g. one. Two.") == [
        *["我们的语言。"] * 4000,
        "E.g. one.",
        "Two.",
    ]
    assert max(lengths) <= LONGEST_PARAGRAPH


def test_cache_holds_the_ids_of_whole_texts(
    corpus: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    cache = open_cache(corpus, tokenizer, tmp_path)
    backend = whole_text_tokenizer(tokenizer)
    documents = list(read_documents(DataSettings(path=str(corpus))))
    assert len(cache) == len(documents)
    for number, document in enumerate(documents):
        ids = np.concatenate(cache.sentences(number)).tolist()
        assert ids == backend.encode(document.text, add_special_tokens=False).ids
        assert cache.length(number) == len(ids) > 8  # longer than the truncation in the file
        assert len(cache.sentences(number)) == len(split_sentences(document.text))
    assert cache.names([3, 1]) == ["doc-3", "doc-1"]


def test_short_documents_are_skipped_and_counted(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    texts = ["Bal. Dem.", "Only one sentence", "", "Kir. Kol. Dus."]
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
    cache = open_cache(path, tokenizer, tmp_path / "cache")
    assert (cache.counts.read, cache.counts.too_short, len(cache)) == (4, 2, 2)
    assert len(open_cache(path, tokenizer, tmp_path / "cache", min_sentences=3)) == 1
    path.write_text(json.dumps({"text": "One."}), encoding="utf-8")
    with pytest.raises(DataError, match="1 documents read, none with 2 sentences"):
        open_cache(path, tokenizer, tmp_path / "cache")


def test_cache_is_reused_until_its_inputs_change(
    corpus: Path,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = open_cache(corpus, tokenizer, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(documents, "read_documents", lambda settings: pytest.fail("read again"))
        assert open_cache(corpus, tokenizer, tmp_path).root == first.root
    changed = open_cache(corpus, tokenizer, tmp_path, mask_pattern="bal")
    assert changed.root != first.root
    assert changed.counts.tokens != first.counts.tokens
    assert len(open_cache(corpus, tokenizer, tmp_path, limit=5)) == 5


def test_interrupted_build_continues_where_it_stopped(
    corpus: Path,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = open_cache(corpus, tokenizer, tmp_path / "whole")
    monkeypatch.setattr(documents, "_BLOCK", 10)
    split_calls: list[str] = []

    def failing(settings: DataSettings) -> Iterator[Document]:
        for number, document in enumerate(read_documents(settings)):
            if number == 35:
                raise KeyboardInterrupt
            yield document

    with monkeypatch.context() as patch:
        patch.setattr(documents, "read_documents", failing)
        with pytest.raises(KeyboardInterrupt):
            open_cache(corpus, tokenizer, tmp_path / "cut")

    def counted(text: str, language: str) -> list[str]:
        split_calls.append(text)
        return split_sentences(text, language)

    monkeypatch.setattr(documents, "split_sentences", counted)
    resumed = open_cache(corpus, tokenizer, tmp_path / "cut")
    assert len(split_calls) == 30  # 30 of 60 were already on disk
    assert contents(resumed) == contents(whole)
    assert resumed.counts == whole.counts
    assert resumed.names(range(60)) == whole.names(range(60))


def test_a_build_that_ended_while_it_tidied_up_can_be_repeated(
    corpus: Path,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = open_cache(corpus, tokenizer, tmp_path / "whole")
    removed: list[Path] = []
    unlink = Path.unlink

    def first_only(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name.endswith(".partial") and path.exists():
            if removed:
                raise KeyboardInterrupt
            removed.append(path)
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", first_only)
        with pytest.raises(KeyboardInterrupt):
            open_cache(corpus, tokenizer, tmp_path / "cut")
    assert len(removed) == 1
    assert contents(open_cache(corpus, tokenizer, tmp_path / "cut")) == contents(whole)


def test_only_ids_choose_held_out_documents(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    documents = make_documents(200)

    def held(rows: list[dict[str, str]]) -> set[str]:
        path = tmp_path / "d.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        cache = open_cache(path, tokenizer, tmp_path / "cache", near_duplicates=0)
        train, out = cache.select(0.25)
        assert sorted([*train, *out]) == list(range(len(rows)))
        return set(cache.names(out))

    everything = held(documents)
    assert 25 <= len(everything) <= 75
    assert held(documents[::-1]) == everything
    assert held(documents[:100]) == everything & {d["id"] for d in documents[:100]}


def test_nothing_held_out(corpus: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    train, out = open_cache(corpus, tokenizer, tmp_path).select(0.0)
    assert (len(train), len(out)) == (60, 0)


def test_near_duplicates_are_left_out_of_training(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    documents = make_documents(20)
    documents.append({"id": "copy", "text": documents[4]["text"] + " Bal."})
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in documents), encoding="utf-8")
    cache = open_cache(path, tokenizer, tmp_path / "cache")
    train, _ = cache.select(0.0)
    assert cache.counts.duplicates == 1
    assert train.tolist() == list(range(20))
    kept, _ = open_cache(path, tokenizer, tmp_path / "cache", near_duplicates=0).select(0.0)
    assert len(kept) == 21


def test_specials_come_from_the_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    specials = Specials.of(tokenizer)
    assert (specials.prefix, specials.suffix, specials.pad, specials.mask) == ((2,), (3,), 0, 4)
    assert specials.wrap(np.array([7, 8], dtype=np.uint16)).tolist() == [2, 7, 8, 3]


def test_two_runs_at_once_build_one_cache(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    path = tmp_path / "d.jsonl"
    rows = [json.dumps(document) + "\n" for document in make_documents(300)]
    path.write_text("".join(rows), encoding="utf-8")
    start = Barrier(2)

    def opened(_: int) -> TokenCache:
        start.wait()
        return open_cache(path, tokenizer, tmp_path / "both")

    with ThreadPoolExecutor(2) as runs:
        found = list(runs.map(opened, range(2)))
    single = open_cache(path, tokenizer, tmp_path / "single")
    for one in found:
        assert one.counts == single.counts
        assert contents(one) == contents(single)
