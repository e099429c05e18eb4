"""The table of families and features in docs/reference/bundle.md; with ``-s`` it is printed.

HYPOTHESIS_PROFILE=nightly python -m pytest -s tests/export/test_family_table.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from docsplit.windowing.tokens import DocumentTokenizer
from export.attention import LONG_MODEL_TYPE
from export.engines import (
    Encode,
    Inputs,
    named,
    open_engine,
    openvino_engine,
    source_engine,
)
from export.fp16 import FILE, fuse, write_fp16
from export.graph import write_graph
from export.int8 import FILE as INT8_FILE
from export.int8 import quantise, write_int8
from export.requirements import FAMILIES, SAMPLES
from export.source import open_source, reference_vectors
from export.texts import batches
from tests.conftest import ONLY_NIGHTLY
from tests.export import checkpoints
from tests.export.checkpoints import cosines, save_encoder
from tests.export.test_tokenizers import KINDS, LENGTH, PARTS, whole

WORDS = {
    **dict.fromkeys(("albert", "camembert", "deberta-v2", "xlm-roberta"), "XLM-RoBERTa"),
    **dict.fromkeys(("modernbert", "roberta"), "RoBERTa"),
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen"),
    "mistral": "Mistral",
}
# a reference of DeBERTa takes 12 GB at 8,192
LONG = 2048
TABLE = Path(__file__).parents[2] / "docs" / "reference" / "bundle.md"


@pytest.fixture(scope="module")
def some(pep_texts: list[str]) -> list[str]:
    return [text[:5000] for text in pep_texts[:30]] + [*SAMPLES.values(), " ".join(PARTS)] * 5


def tokenizer_cells(family: str, some: list[str], folder: Path) -> list[str]:
    """The class, whether it builds its own pipeline, and the ids and offsets of long texts."""
    name = str(TOKENIZER_MAPPING_NAMES[family])
    file = KINDS[WORDS.get(family, "BERT")](some)
    specials = {f"{one}_token": f"[{one.upper()}]" for one in ("pad", "unk", "cls", "sep", "mask")}
    made = PreTrainedTokenizerFast(tokenizer_object=file, **specials)
    # a part that no class has
    extra = [normalizers.Replace("e", "a"), made.backend_tokenizer.normalizer]
    made.backend_tokenizer.normalizer = normalizers.Sequence([one for one in extra if one])
    made.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"tokenizer_class": name}))
    opened = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    read = Tokenizer.from_file(str(folder / "tokenizer.json"))
    built = opened.encode("he sees").ids != read.encode("he sees").ids
    document = DocumentTokenizer(opened, 512)
    unit = " ".join([*SAMPLES.values(), *PARTS, "word "])
    text = unit * (LENGTH // len(unit))
    tokens = document.encode(text)
    ids, starts = whole(document, text)
    same = np.array_equal(tokens.ids, ids)
    ascending = np.array_equal(tokens.starts, starts) and (np.diff(starts) >= 0).all()
    return [name, "the class's" if built else "the file's", said(same), said(bool(ascending))]


def said(holds: object) -> str:
    return "yes" if holds else "no"


def graph_cells(folder: Path, sentences: list[str], scratch: Path) -> list[str]:
    """Whether the graphs of a tiny encoder agree with their source."""
    source = open_source(str(folder), tokenizer="class", max_tokens=LONG)
    pad = int(source.tokenizer.pad_token_id)
    tokenizer = Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str())
    texts = sentences[:12]
    exact = reference_vectors(source, texts, batch_size=1).numpy()

    def inputs(given: list[str], size: int) -> list[Inputs]:
        return batches(tokenizer, given, max_tokens=LONG, pad_token_id=pad, size=size)

    def agree(opened: tuple[str, Encode], least: float) -> bool:
        [padded] = inputs(texts, len(texts))
        return bool(cosines(opened[1](padded), exact).min() > least)

    write_graph(source, scratch / "fp32.onnx")
    _, encode = open_engine("fp16", scratch / "fp32.onnx", threads=1)
    token = reference_vectors(source, ["a"]).numpy()
    one = cosines(encode(inputs(["a"], 1)[0]), token)[0] > 0.9999
    settings = folder / "tokenizer_config.json"
    sides = {"padding_side": "left", "truncation_side": "left"}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | sides))
    turned = reference_vectors(
        open_source(str(folder), tokenizer="class", max_tokens=LONG), texts
    ).numpy()
    [padded] = inputs(texts, len(texts))
    ids, mask = padded["input_ids"], padded["attention_mask"]
    nothing = np.zeros_like(mask[:1])
    beside = encode(named(np.concatenate([ids, nothing + pad]), np.concatenate([mask, nothing])))
    hidden = np.isfinite(beside).all() and cosines(beside[:-1], exact).min() > 0.9999
    long = named(np.resize(ids[mask > 0], (1, LONG)), np.ones((1, LONG), np.int64))
    read = cosines(encode(long), source_engine(source)(long))[0] > 0.9999
    write_fp16(fuse(source, scratch / "fp32.onnx", inputs(texts, 8)), scratch)
    half = agree(open_engine("fp16", scratch / FILE, threads=1), 0.9999)
    short = agree(openvino_engine(scratch / FILE, threads=1, floating="bf16"), 0.99)
    write_int8(quantise(scratch / "fp32.onnx", inputs(sentences[12:24], 1)), scratch)
    whole_numbers = agree(open_engine("int8", scratch / INT8_FILE, threads=1), 0.98)
    left = cosines(turned, exact).min() > 0.9999
    return [said(cell) for cell in (one, left, hidden, read, half, short, whole_numbers)]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != LONG_MODEL_TYPE])
@ONLY_NIGHTLY
def test_the_table_says_what_each_family_does(
    family: str,
    bert_folder: Path,
    roberta_folder: Path,
    sentences: list[str],
    some: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "WINDOW", LONG)
    monkeypatch.setitem(checkpoints.MODERN, "max_position_embeddings", LONG)
    monkeypatch.setitem(checkpoints.OFFSET, "max_position_embeddings", LONG + 2)
    folder = save_encoder(family, bert_folder, roberta_folder, tmp_path / "encoder", layers=1)
    (tmp_path / "tokenizer").mkdir()
    cells = tokenizer_cells(family, some, tmp_path / "tokenizer")
    row = f"| {' | '.join([family, *cells, *graph_cells(folder, sentences, tmp_path)])} |"
    print(row)  # noqa: T201 - it is the command's output
    assert row in TABLE.read_text(encoding="utf-8")
