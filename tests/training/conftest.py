"""Fixtures: a tiny random model and a small corpus."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from tests import forked
from training.settings import Settings
from training.trainer import loop

# The models are too small to gain from threads.
torch.set_num_threads(1)

_SYLLABLES = (
    "ba",
    "be",
    "bi",
    "bo",
    "bu",
    "da",
    "de",
    "di",
    "do",
    "du",
    "ka",
    "ke",
    "ki",
    "ko",
    "ku",
)
WORDS = [syllable + end for syllable in _SYLLABLES for end in "lmnrst"]


def start_process(target: Callable[..., object], *given: object) -> BaseProcess:
    """Call a function in a process of its own, which needs not import everything again."""
    forked.begin()
    process = get_context("forkserver").Process(target=target, args=given)
    process.start()
    return process


SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = (*SPECIALS, *WORDS, ".", "##x", "##y")


def make_tokenizer(
    pieces: Sequence[str] = PIECES, specials: Sequence[str] = SPECIALS
) -> PreTrainedTokenizerFast:
    """A tokenizer of words; ``specials`` name padding, unknown, first, last and mask token."""
    pad, unknown, first, last, mask = specials
    backend = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(
        (last, pieces.index(last)), (first, pieces.index(first))
    )
    # Published tokenizer files truncate and pad. The training must not.
    backend.enable_truncation(8)
    backend.enable_padding(length=8)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        unk_token=unknown,
        cls_token=first,
        sep_token=last,
        mask_token=mask,
    )


def make_documents(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Documents of 4 to 12 sentences. Each document has its own frequent words."""
    draw = random.Random(seed)
    documents = []
    for number in range(count):
        favourites = draw.sample(WORDS, 12)
        sentences = [
            " ".join(draw.choices(favourites, k=draw.randint(3, 9))).capitalize() + "."
            for _ in range(draw.randint(4, 12))
        ]
        documents.append({"id": f"doc-{number}", "text": " ".join(sentences)})
    return documents


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def save_tiny_model(
    folder: Path,
    made: PreTrainedTokenizerFast,
    *,
    seed: int,
    width: int,
    layers: int = 1,
    positions: int = 64,
) -> Path:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(made),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=positions,
    )
    BertModel(config).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), make_tokenizer(), seed=0, width=32)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("teacher"), make_tokenizer(), seed=9, width=32)


@pytest.fixture(scope="session")
def wide_teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher of twice the width, whose vocabulary has other numbers and other special tokens."""
    specials = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    made = make_tokenizer(("more", *specials, *reversed(PIECES[len(SPECIALS) :])), specials)
    return save_tiny_model(tmp_path_factory.mktemp("wide"), made, seed=9, width=64)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "documents.jsonl"
    lines = [json.dumps(d) for d in make_documents(60)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def plots() -> None:
    """Let runs draw their plot."""


@pytest.fixture(autouse=True)
def no_plots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs draw no plot: it costs a second, most of a short run."""
    if "plots" not in request.fixturenames:
        monkeypatch.setattr(loop, "plot_run", lambda folder, chance: None)


MakeSettings = Callable[..., Settings]


@pytest.fixture
def make_settings(tiny_model: Path, corpus: Path, tmp_path: Path) -> MakeSettings:
    """Settings of a run of a few steps. Arguments override single keys of a section."""

    def make(**sections: dict[str, Any]) -> Settings:
        base: dict[str, dict[str, Any]] = {
            "data": {"path": str(corpus), "cache": tmp_path / "cache", "held_out": 0.2},
            "backbone": {"path": str(tiny_model), "max_tokens": 32},
            "objective": {},
            "optimisation": {
                "batch_size": 8,
                "max_steps": 2,
                "learning_rate": 1e-3,
                "chunk_tokens": 512,
            },
            "run": {
                "output": tmp_path / "run",
                "evaluate_every": 100,
                "evaluate_documents": 8,
                "tensorboard": False,
                "workers": 0,
            },
        }
        for name, values in sections.items():
            base[name].update(values)
        return Settings.model_validate(base)

    return make
