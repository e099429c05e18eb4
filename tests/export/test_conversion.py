"""``docsplit-export to-sentence-transformers``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from docsplit.bundles.format import Bundle, load
from docsplit.engines.openvino_cpu import openvino_core
from export.__main__ import main
from export.pipeline import Request
from export.pipeline import export as run
from export.texts import batches
from tests.export.checkpoints import cosines, encode
from tests.export.conftest import save_sentence_transformer
from tests.export.optimum_environment import by_sentence_transformers, needs_optimum

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")


@pytest.fixture(scope="module")
def bundle(
    shallow_folder: Path,
    text_file: Path,
    neighbours_of_random_encoders: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bundle:
    folder = tmp_path_factory.mktemp("conversion")
    source = save_sentence_transformer(
        shallow_folder,
        folder / "model",
        pooling="max",
        normalise=False,
        prompts={"query": "query: "},
        default_prompt_name="query",
    )
    request = Request(
        source=str(source),
        dest=folder / "bundle",
        licence="MIT",
        calibration=text_file,
        paragraphs=200,
    )
    run(request)
    return load(folder / "bundle")


@pytest.fixture(scope="module")
def folder(bundle: Bundle) -> Path:
    path = bundle.root.parent / "folder"
    assert main(["to-sentence-transformers", str(bundle.root), str(path)]) == 0
    return path


def test_the_graphs_give_the_vector_at_each_token(
    bundle: Bundle, folder: Path, sentences: list[str]
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = sentences[:8]
    [inputs] = batches(tokenizer, texts, max_tokens=64, pad_token_id=0, size=8)
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["last_hidden_state"]
    core = openvino_core()
    for precision, path in (
        ("fp16", "openvino/openvino_model.xml"),
        ("int8", "openvino/openvino_model_qint8_quantized.xml"),
    ):
        own = encode(bundle, texts, size=8, precision=precision, runtime="openvino")  # type: ignore[arg-type]
        # as encode does: OpenVINO chooses what of an int8 graph runs in bf16
        hint = {"INFERENCE_PRECISION_HINT": "f32"} if precision == "fp16" else {}
        compiled = core.compile_model(folder / path, "CPU", hint)
        found = compiled(inputs)["last_hidden_state"]
        assert found.shape == (*inputs["input_ids"].shape, 32)
        assert np.abs(found - own[:, None]).max() < 1e-3
    [found] = session.run(None, inputs)
    own = encode(bundle, texts, size=8)
    assert np.array_equal(found, np.broadcast_to(own[:, None], found.shape))


def test_the_settings_are_those_of_the_bundle(folder: Path) -> None:
    def read(name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((folder / name).read_text())
        return found

    prompts = read("config_sentence_transformers.json")
    assert (prompts["prompts"], prompts["default_prompt_name"]) == ({"query": "query: "}, "query")
    assert read("sentence_bert_config.json") == {"max_seq_length": 64}
    assert read("tokenizer_config.json")["pad_token"] == "[PAD]"


def test_an_existing_folder_and_a_bundle_without_fp16_are_refused(
    bundle: Bundle, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert main(["to-sentence-transformers", str(bundle.root), str(folder)]) == 1
    assert "already exists" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before
    assert main(["to-sentence-transformers", str(folder), str(folder / "new")]) == 1
    assert "is " in capsys.readouterr().err


@needs_optimum
@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_the_folder_opens_in_sentence_transformers(
    backend: str, bundle: Bundle, folder: Path, sentences: list[str], tmp_path: Path
) -> None:
    vectors = by_sentence_transformers(folder, sentences, tmp_path, backend)
    own = encode(bundle, sentences, size=8)
    assert cosines(vectors, own).min() > 0.9999
    if backend == "openvino":
        int8 = {"file_name": "openvino_model_qint8_quantized.xml"}
        vectors = by_sentence_transformers(folder, sentences, tmp_path, backend, **int8)
        own = encode(bundle, sentences, size=8, precision="int8", runtime="openvino")
        assert cosines(vectors, own).min() > 0.99
