"""The folder of a new bundle: what may be replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from docsplit.bundles.format import load, seal
from export.errors import ExportError
from export.pipeline import check_destination, put_in_place
from tests.export.test_bundle import fields


def made(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.fp16.onnx").write_bytes(b"graph")
    seal(folder, **fields(name=name))
    return folder


def test_a_link_to_a_bundle_is_replaced_and_its_bundle_stays(tmp_path: Path) -> None:
    former = made(tmp_path / "v1", "v1")
    scratch = tmp_path / "scratch"
    new = made(scratch / "bundle", "v2")
    dest = tmp_path / "current"
    dest.symlink_to(former)
    put_in_place(new, dest, scratch, force=True)
    assert load(dest).manifest.name == "v2"
    assert load(former).manifest.name == "v1"
    assert list(scratch.iterdir()) == []


def test_a_folder_that_appears_during_the_export_stays(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    new = made(scratch / "bundle", "new")
    bundle = made(tmp_path / "former", "former")
    thesis = tmp_path / "thesis" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("irreplaceable")
    for dest, force, reason in (
        (bundle, False, "already exists; --force"),
        (thesis.parent, False, "already exists; --force"),
        (thesis.parent, True, "is not a bundle; --force does not remove it"),
    ):
        with pytest.raises(ExportError, match=reason):
            put_in_place(new, dest, scratch, force=force)
    assert load(bundle).manifest.name == "former"
    assert thesis.read_text() == "irreplaceable"


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    """At once: no folder can take its place when the export is done."""
    dest = tmp_path / "current"
    dest.symlink_to(tmp_path / "gone")
    for force in (False, True):
        with pytest.raises(ExportError, match="is a link that leads nowhere; remove it"):
            check_destination(dest, force=force)
