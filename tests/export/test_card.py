"""The licence and the lengths of vectors that a model card declares."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docsplit.corpora.fields import DataError
from export.errors import ExportError
from export.pipeline import Request
from export.pipeline import export as run
from export.requirements import licence, matryoshka
from export.tasks import HeldOut
from tests.export.conftest import save_sentence_transformer

CARD = """---
license: apache-2.0
---
# Tiny
```json
{"loss": "MultipleNegativesRankingLoss", "matryoshka_dims": [32, 8, 16]}
```
"""


@pytest.mark.parametrize(
    ("named", "spdx"), [("apache-2.0", "Apache-2.0"), ("mit", "MIT"), ("gemma", "gemma")]
)
def test_the_licence_is_an_spdx_identifier_where_there_is_one(named: str, spdx: str) -> None:
    assert licence("m", f"---\nlicense: {named}\n---\ntext") == spdx


@pytest.mark.parametrize(
    "card",
    ["", "# Tiny", "---\ntags: []\n---\n", "---\nlicense: other\n---\n", "---\nlicense: [\n---\n"],
)
def test_a_card_without_licence_asks_for_the_option(card: str) -> None:
    with pytest.raises(ExportError, match=r"m: its model card names no licence; .*--licence"):
        licence("m", card)


def test_licence_and_columns_are_looked_for_before_weights(
    shallow_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(shallow_folder, tmp_path / "weightless")
    (folder / "model.safetensors").write_bytes(b"")
    table = tmp_path / "texts.csv"
    table.write_text("body\na\n")
    request = Request(str(folder), tmp_path / "bundle")
    with pytest.raises(ExportError, match="its model card names no licence"):
        run(request)
    (folder / "README.md").write_text(CARD)
    with pytest.raises(DataError, match=r"texts\.csv:1: no column text; there are body"):
        run(replace(request, calibration=table))
    with pytest.raises(DataError, match=r"texts\.csv:1: no column text and label"):
        run(replace(request, held_out=HeldOut(probe=[table])))


def test_lengths_come_from_the_config_or_the_card() -> None:
    assert matryoshka(SimpleNamespace(), CARD, 32) == [16, 8]
    assert matryoshka(SimpleNamespace(matryoshka_dimensions=[4, 24, 64]), CARD, 32) == [24, 4]
    assert matryoshka(SimpleNamespace(), "", 32) == []
    # as people write it, or by mistake
    assert matryoshka(SimpleNamespace(), '"matryoshka_dims": [16, 8,]', 32) == [16, 8]
    assert matryoshka(SimpleNamespace(), f'"matryoshka_dims": [{"9" * 5000}]', 32) == []
    for declared in (16, "16", {"16": 1}, ["16"], [None, 1.5, True]):
        assert matryoshka(SimpleNamespace(matryoshka_dimensions=declared), "", 32) == []


def test_a_bundle_holds_what_the_card_declares(
    shallow_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    folder = save_sentence_transformer(
        shallow_folder, tmp_path / "tiny", pooling="mean", normalise=True
    )
    (folder / "README.md").write_text(CARD)
    request = Request(
        source=str(folder),
        dest=tmp_path / "bundle",
        calibration=text_file,
        paragraphs=200,
        precisions=("fp16",),
        thresholds={"fp16.neighbour_agreement": 0.7},
    )
    made: Any = run(request)
    assert (made.licence, made.matryoshka) == ("Apache-2.0", [16, 8])
    # lengths do not change a vector
    assert made.content_hash() == made.model_copy(update={"matryoshka": []}).content_hash()
    assert "matryoshka" not in made.model_copy(update={"matryoshka": []}).model_dump()
