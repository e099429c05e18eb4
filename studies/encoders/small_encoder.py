"""Make a small BERT with random weights to pretrain by masked LM. Used on 2026-11-22.

    python -m studies.encoders.small_encoder --documents wiki.jsonl --out runs/small
    docsplit-train --data.path wiki.jsonl --backbone.path runs/small/start --objective.view mlm ...

Its vocabulary comes from the documents. ``studies.encoders.objectives`` starts from it, so that the
effect of an objective is not confused with the contrastive tuning of published start weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pyarrow.json
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, BertTokenizer

_HEAD = 64


def build(given: argparse.Namespace) -> None:
    """Learn the vocabulary, draw the weights and write both as a sentence-transformers folder."""
    texts = pyarrow.json.read_json(given.documents)["text"].to_pylist()
    learnt = BertWordPieceTokenizer(lowercase=True)
    learnt.train_from_iterator(texts, vocab_size=given.vocabulary, show_progress=True)
    tokenizer = BertTokenizer(tokenizer_object=learnt._tokenizer)
    torch.manual_seed(given.seed)
    model = BertModel(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=given.width,
            num_hidden_layers=given.layers,
            num_attention_heads=given.width // _HEAD,
            intermediate_size=4 * given.width,
            max_position_embeddings=512,
        )
    )
    parts = given.out / "parts"
    model.save_pretrained(parts)
    tokenizer.save_pretrained(parts)
    backbone = Transformer(str(parts), max_seq_length=given.max_tokens)
    pooling = Pooling(given.width, pooling_mode="mean")
    encoder = SentenceTransformer(modules=[backbone, pooling, Normalize()], device="cpu")
    encoder.save_pretrained(str(given.out / "start"), create_model_card=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Build it."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.encoders.small_encoder",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--documents", type=Path, required=True, help="JSON Lines with a field text")
    add("--out", type=Path, required=True, help="parent of the resulting folder start")
    add("--layers", type=int, default=4)
    add("--width", type=int, default=256, help="a multiple of 64, for heads of 64 dimensions")
    add("--vocabulary", type=int, default=8192)
    add("--max-tokens", type=int, default=128)
    add("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.width < _HEAD or given.width % _HEAD:
        parser.error(f"--width {given.width}: give a multiple of {_HEAD}")
    build(given)


if __name__ == "__main__":
    main()
