"""Tokenizers of other makers: which one is meant, and long texts in pieces."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from docsplit.bundles.format import load
from docsplit.windowing import tokens as pieces
from docsplit.windowing.tokens import DocumentTokenizer
from export.__main__ import main
from export.errors import ExportError
from export.inspection import verify
from export.pipeline import Request
from export.pipeline import export as run
from export.requirements import SAMPLES, InText, Reader
from export.source import open_source, reference_vectors
from export.tasks import HeldOut
from export.texts import write_tokenizer
from tests.export.checkpoints import cosines
from tests.export.conftest import word_pieces

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def word_piece(texts: list[str]) -> Tokenizer:
    """As BERT, MPNet and DistilBERT have it."""
    made = Tokenizer(models.WordPiece(word_pieces(texts), unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def bytes_by(pattern: str, texts: list[str]) -> Tokenizer:
    """Byte pairs in the words of a pattern: RoBERTa, ModernBERT, Qwen."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, plain])
    return trained(made, texts, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def llama(texts: list[str]) -> Tokenizer:
    """As SentencePiece's byte pairs: a blank before the text, and no words at all."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.pre_tokenizer = pre_tokenizers.Split(Regex("▁+[^▁]*"), "isolated")
    trained(made, texts, special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])
    made.pre_tokenizer = None
    return made


def mistral(texts: list[str]) -> Tokenizer:
    """The same with the blank of the first word only."""
    made = llama(texts)
    made.normalizer = None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return made


def unigram(texts: list[str]) -> Tokenizer:
    """As XLM-RoBERTa, ALBERT and DeBERTa-v2 have it, which strip white space."""
    words = [word.replace("##", "") for word in word_pieces(texts, 2000)]
    known = dict.fromkeys(("<unk>", "▁", *(f"▁{word}" for word in words), *words))
    scores = [(word, -10.0 + 2 * len(word)) for word in known]
    made = Tokenizer(models.Unigram(scores, unk_id=0))
    made.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def trained(made: Tokenizer, texts: list[str], **options: Any) -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=1200, show_progress=False, **options)
    made.train_from_iterator(texts, trainer)
    return made


KINDS: dict[str, Callable[[list[str]], Tokenizer]] = {
    "BERT": word_piece,
    "RoBERTa": lambda texts: bytes_by(GPT2, texts),
    "Qwen": lambda texts: bytes_by(QWEN2, texts),
    "Llama": llama,
    "Mistral": mistral,
    "XLM-RoBERTa": unigram,
}
# what stands at the edges of pieces
PARTS = [
    *(" ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", " \u0301"),
    *(".", "...", ")", "'s", "=\u0338", "—", "“", "_"),
    *(
        "word",
        "The",
        "e\u0301",
        "\u0301",
        "1",
        "2026",
        "ﬁ",
        "漢字。",
        "かな",
        "한국",
        "ไทย",
        "عربي",
    ),
    *(
        "हिन्दी",
        "🇩🇪",
        "👩\u200d👧",
        "\u200b",
        "\u00ad",
        "\x00",
        "<unk>",
        "a" * 300,
        "https://a.b/c?d=e",
    ),
]
LENGTH = 3 * pieces.LONGEST


@pytest.fixture(scope="module")
def made(pep_texts: list[str]) -> dict[str, DocumentTokenizer]:
    some = [text[:5000] for text in pep_texts[:30]] + [*SAMPLES.values(), " ".join(PARTS)] * 5
    return {name: DocumentTokenizer(make(some), 512) for name, make in KINDS.items()}


def whole(tokenizer: DocumentTokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and starts of a text that is tokenised in one call."""
    encoding = tokenizer.whole(text)
    return np.array(encoding.ids), np.array([start for start, _ in encoding.offsets])


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=40))
def test_pieces_have_the_tokens_of_the_whole(
    made: dict[str, DocumentTokenizer], name: str, parts: list[str]
) -> None:
    unit = "".join([*parts, "word "])
    text = unit * (LENGTH // len(unit))
    tokens = made[name].encode(text)
    ids, starts = whole(made[name], text)
    np.testing.assert_array_equal(tokens.ids, ids)
    np.testing.assert_array_equal(tokens.starts, starts)


def test_pieces_without_the_characters_around_them_have_others(
    made: dict[str, DocumentTokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "AROUND", 0)
    text = "some words.\n\nand others\n\n" * (LENGTH // 25)
    unequal = {name for name, one in made.items() if one.count(text) != len(whole(one, text)[0])}
    assert unequal == {"Llama", "Mistral", "Qwen", "XLM-RoBERTa"}


def test_a_tokenizer_whose_words_have_no_edges_is_refused(
    bert_folder: Path, sentences: list[str], tmp_path: Path
) -> None:
    source = open_source(str(bert_folder))
    # a word beyond WordPiece's limit is read in parts, in pieces or not
    write_tokenizer(source, tmp_path, [*sentences, "b" * 150])
    source.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(r"[\s\S]{7}"), "isolated"
    )
    with pytest.raises(ExportError, match="does not split a long text in pieces as it splits"):
        write_tokenizer(source, tmp_path, sentences)


@pytest.fixture
def cased(bert_folder: Path, tmp_path: Path) -> Path:
    """A checkpoint of BERT's class, which writes small letters, with a file that does not."""
    folder = tmp_path / "cased"
    shutil.copytree(bert_folder, folder)
    change(folder / "tokenizer_config.json", tokenizer_class="BertTokenizer")
    open_source(str(folder))
    normalizer = json.loads((folder / "tokenizer.json").read_text())["normalizer"]
    change(folder / "tokenizer.json", normalizer=normalizer | {"lowercase": False})
    return folder


def change(file: Path, **fields: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_a_file_that_splits_otherwise_than_its_class_needs_a_choice(
    cased: Path, text_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"splits capital letters, .*: --tokenizer file .*class"):
        open_source(str(cased))
    text = "The QUICK fox"
    file, built = (open_source(str(cased), tokenizer=wanted) for wanted in get_args(Reader))
    read = Tokenizer.from_file(str(cased / "tokenizer.json"))
    assert file.tokenizer(text)["input_ids"] == read.encode(text).ids
    assert built.tokenizer(text)["input_ids"] == read.encode(text.lower()).ids
    # the vectors that the gate compares with are those of the chosen one
    vectors = [reference_vectors(one, [text, text.lower()]).numpy() for one in (file, built)]
    assert cosines(*vectors)[0] < 0.99
    assert cosines(*vectors)[1] > 0.9999
    run(
        Request(
            source=str(cased),
            dest=tmp_path / "bundle",
            licence="MIT",
            tokenizer="file",
            precisions=("fp16",),
            calibration=text_file,
            paragraphs=200,
        )
    )
    bundle = load(tmp_path / "bundle")
    written = Tokenizer.from_file(str(bundle.path("tokenizer.json")))
    assert written.encode(text).ids == read.encode(text).ids
    # it opens the source with the same tokenizer
    verify(
        bundle,
        str(cased),
        calibration=text_file,
        paragraphs=200,
        held_out=HeldOut(),
        threads=1,
    )


ASKED = "a [MASK] b </s> c [SEP] d <s>"


def save_unigram(texts: list[str], folder: Path) -> None:
    """Give a checkpoint a tokenizer like XLM-RoBERTa's, with its special tokens among the words."""
    marks = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    words = [word.replace("##", "") for word in word_pieces(texts, 500)]
    known = dict.fromkeys([*marks, "▁", *"[]<>/", *words])
    scores = [(word, 0.0 if word in marks else -10.0) for word in known]
    made = Tokenizer(models.Unigram(scores, unk_id=1))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    ends = [("<s>", 2), ("</s>", 3)]
    made.post_processor = processors.TemplateProcessing("<s> $A </s>", None, ends)
    names = {f"{one}_token": f"<{one}>" for one in ("pad", "unk", "mask")}
    PreTrainedTokenizerFast(
        tokenizer_object=made, cls_token="<s>", sep_token="</s>", **names
    ).save_pretrained(folder)


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram"])
def test_special_tokens_in_a_text_are_text_where_asked(
    kind: str, shallow_folder: Path, text_file: Path, pep_texts: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(shallow_folder, folder)
    if kind == "Unigram":
        save_unigram(pep_texts[:30], folder)
    control, text = (
        open_source(str(folder), special_tokens_in_text=asked) for asked in get_args(InText)
    )
    special = set(control.tokenizer.all_special_ids) - {control.tokenizer.unk_token_id}
    assert special & set(control.tokenizer(ASKED)["input_ids"][1:-1])
    ids = text.tokenizer(ASKED)["input_ids"]
    assert not special & set(ids[1:-1])
    assert (ids[0], ids[-1]) == (control.tokenizer.cls_token_id, control.tokenizer.sep_token_id)
    # transformers leaves those that Unigram has in its vocabulary
    split = control.tokenizer(ASKED, split_special_tokens=True)["input_ids"]
    assert (ids == split) == (kind == "WordPiece")
    vectors = [reference_vectors(one, [ASKED]).numpy() for one in (control, text)]
    assert cosines(*vectors)[0] < 0.999

    measured: dict[str, Any] = {"calibration": text_file, "paragraphs": 200}
    asked = Request(str(folder), tmp_path / "bundle", licence="MIT", precisions=("fp16",))
    run(dataclasses.replace(asked, special_tokens_in_text="text", **measured))
    bundle = load(tmp_path / "bundle")
    assert bundle.manifest.lineage.settings["special_tokens_in_text"] == "text"
    read = DocumentTokenizer(bundle.path("tokenizer.json"), 64)
    assert read.model_input([read.encode(ASKED).ids]).tolist() == ids
    # both open the same tokenizer
    verify(bundle, str(folder), held_out=HeldOut(), threads=1, **measured)
    assert main(["to-sentence-transformers", str(bundle.root), str(tmp_path / "other")]) == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "other")(ASKED)["input_ids"] == ids


def test_a_checkpoint_says_itself_what_special_tokens_in_a_text_are(
    bert_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert_folder, folder)
    change(folder / "tokenizer_config.json", split_special_tokens=True)
    asked: tuple[InText | None, ...] = (None, "control")
    text, control = (open_source(str(folder), special_tokens_in_text=one) for one in asked)
    separator = text.tokenizer.sep_token_id
    assert text.tokenizer(ASKED)["input_ids"].count(separator) == 1
    assert control.tokenizer(ASKED)["input_ids"].count(separator) == 2


def test_a_special_token_that_cannot_be_split_is_refused(bert_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert_folder, folder)
    change(folder / "tokenizer_config.json", mask_token="e")
    open_source(str(folder), tokenizer="class")
    with pytest.raises(ExportError, match="reads e in a text as special tokens whatever"):
        open_source(str(folder), tokenizer="class", special_tokens_in_text="text")
