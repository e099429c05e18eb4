"""Fixtures: tiny random checkpoints of real architectures, with tokenizers of the PEPs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from export import texts
from export.thresholds import THRESHOLDS

ROOT = Path(__file__).parents[2]
PEPS = ROOT / "examples" / "peps" / "documents.jsonl.gz"
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    # Far above the usual .02, so that attention has an effect in an untrained model.
    "initializer_range": 0.1,
}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def few_passages() -> Iterator[None]:
    """Calibrate with fewer passages: int8 reads each three times, and the encoders are tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CALIBRATION", 16)
        yield


@pytest.fixture(scope="session")
def pep_texts() -> list[str]:
    with gzip.open(PEPS, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


@pytest.fixture(scope="session")
def sentences(pep_texts: list[str]) -> list[str]:
    """64 texts of 1 to 120 words."""
    return [" ".join(text.split()[40 : 41 + 8 * (i % 16)]) for i, text in enumerate(pep_texts[:64])]


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory, pep_texts: list[str]) -> Path:
    """600 short texts of 1 to 80 words, one per line, so that tiny exports are quick."""
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    lines = [" ".join(t.split()[80 : 81 + (7 * i) % 80]) for i, t in enumerate(pep_texts[:600])]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory, pep_texts: list[str]) -> Path:
    """A transformers folder without modules.json."""
    return save_bert(tmp_path_factory.mktemp("bert") / "tiny-bert", pep_texts)


@pytest.fixture(scope="session")
def shallow_folder(tmp_path_factory: pytest.TempPathFactory, pep_texts: list[str]) -> Path:
    """The same with one layer, which is exported in two thirds of the time."""
    folder = tmp_path_factory.mktemp("shallow") / "tiny-bert"
    return save_bert(folder, pep_texts, num_hidden_layers=1)


@pytest.fixture(scope="session")
def word_folder(tmp_path_factory: pytest.TempPathFactory, pep_texts: list[str]) -> Path:
    """The same, of which most of a vector comes from the words, as in trained encoders.

    So no processor's rounding decides which vector is nearest.
    """
    folder = tmp_path_factory.mktemp("words") / "tiny-bert"
    return save_bert(folder, pep_texts, initializer_range=0.02)


def word_pieces(texts: Sequence[str], size: int = 600) -> dict[str, int]:
    """A vocabulary of letters and frequent words.

    ``trainers.WordPieceTrainer`` gives another one in each process, and so another encoder.
    """
    normal, words = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    counted = Counter(
        word for text in texts for word, _ in words.pre_tokenize_str(normal.normalize_str(text))
    )
    letters = sorted({letter for word in counted for letter in word})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [f"##{letter}" for letter in letters]
    frequent = sorted((word for word in counted if len(word) > 1), key=lambda w: (-counted[w], w))
    return {piece: number for number, piece in enumerate([*pieces, *frequent][:size])}


def save_bert(folder: Path, pep_texts: list[str], **config: Any) -> Path:
    tokenizer = Tokenizer(models.WordPiece(word_pieces(pep_texts[:30]), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = SIZES | config
    given = BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **sizes)
    BertModel(given).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def roberta_folder(tmp_path_factory: pytest.TempPathFactory, pep_texts: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("roberta") / "tiny-roberta"
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pep_texts[:30], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=64,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=98,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        **SIZES,
    )
    RobertaModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def neighbours_of_random_encoders() -> Iterator[None]:
    """Vectors of an untrained encoder are so similar that rounding decides which is nearest."""
    with pytest.MonkeyPatch.context() as patch:
        for limits in THRESHOLDS.values():
            patch.setitem(limits, "neighbour_agreement", 0.7)
        yield


def save_sentence_transformer(
    encoder: Path, folder: Path, *, pooling: str, normalise: bool, **settings: Any
) -> Path:
    """A sentence-transformers folder around ``encoder``."""
    modules: list[torch.nn.Module] = [
        Transformer(str(encoder), max_seq_length=64),
        Pooling(32, pooling_mode=pooling),
    ]
    if normalise:
        modules.append(Normalize())
    SentenceTransformer(modules=modules, device="cpu", **settings).save_pretrained(
        str(folder), create_model_card=False
    )
    return folder
