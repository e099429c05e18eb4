"""Graphs whose weights lie in a file of their own, as those of large encoders do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import ExternalDataInfo

import export.storage
from docsplit.bundles.format import Bundle, load
from docsplit.bundles.manifest import BundleError
from docsplit.engines.onnx import OnnxCpuEngine
from docsplit.engines.openvino_cpu import OpenVinoEngine
from export.pipeline import Request
from export.pipeline import export as run
from export.source import open_source, reference_vectors
from tests.export.checkpoints import cosines, encode
from tests.export.test_onnx_folder import folder_of

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")
DATA = "model.fp16.onnx.data"
REPAIRED: dict[str, Any] = {"thresholds": {"fp16.cosine_mean": 1.0}, "accept": ("fp16",)}


@pytest.fixture(scope="module", autouse=True)
def files_hold_little() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export.storage, "MOST_BYTES", 20_000)
        yield


def order(source: Path, dest: Path, text_file: Path, **settings: Any) -> Request:
    given: dict[str, Any] = {
        "source": str(source),
        "dest": dest,
        "licence": "MIT",
        "calibration": text_file,
        "paragraphs": 200,
        "precisions": ("fp16",),
        **settings,
    }
    return Request(**given)


@pytest.fixture(scope="module")
def bundle(
    shallow_folder: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bundle:
    """Its fp16 form was repaired, too, as far as the repair goes."""
    dest = tmp_path_factory.mktemp("large") / "bundle"
    request = order(
        shallow_folder,
        dest,
        text_file,
        precisions=("fp16", "int8"),
        **REPAIRED,
    )
    run(request)
    return load(dest)


def test_a_bundle_with_weights_beside_the_graph_serves(
    bundle: Bundle, shallow_folder: Path, sentences: list[str]
) -> None:
    graph = bundle.graph("fp16")
    assert graph.stat().st_size < 60_000 < bundle.path(DATA).stat().st_size
    tensors = onnx.load(graph, load_external_data=False).graph.initializer
    places = {ExternalDataInfo(one).location for one in tensors if one.external_data}
    assert places == {DATA}
    reference = reference_vectors(open_source(str(shallow_folder)), sentences).numpy()
    assert cosines(encode(bundle, sentences, size=8), reference).min() > 0.9999
    ids = np.array([[2, 9, 10, 11, 3]])
    mask = np.ones_like(ids)
    vectors = [
        OnnxCpuEngine(graph, "f32", 1, 1).run(ids, mask)[0],
        OpenVinoEngine(graph, "f32", 1, 1).run(ids, mask)[0],
    ]
    assert vectors[0] @ vectors[1] > 0.9999


def test_a_bundle_whose_weights_changed_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    folder = shutil.copytree(bundle.root, tmp_path / "bundle")
    path = load(folder).path(DATA)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match=rf"{DATA}: content differs"):
        load(folder)
    path.unlink()
    with pytest.raises(BundleError, match=rf"{DATA}: missing"):
        load(folder)


def test_the_same_weights_give_the_same_files(
    bundle: Bundle, shallow_folder: Path, text_file: Path, tmp_path: Path
) -> None:
    again = run(order(shallow_folder, tmp_path / "again", text_file, **REPAIRED))
    assert DATA in again.files
    assert again.files.items() <= bundle.manifest.files.items()


def test_a_graph_of_a_folder_with_such_weights_exports(
    shallow_folder: Path, text_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    folder = folder_of(shallow_folder, tmp_path / "folder", "other names")
    graph = folder / "model.onnx"
    onnx.save_model(onnx.load(graph), graph, save_as_external_data=True, location="model.onnx_data")
    assert (folder / "model.onnx_data").stat().st_size > 60_000
    run(order(folder, tmp_path / "bundle", text_file))
    reference = reference_vectors(open_source(str(shallow_folder)), sentences).numpy()
    assert cosines(encode(load(tmp_path / "bundle"), sentences, size=8), reference).min() > 0.9999
