"""``--through optimum``: with a real optimum where there is one, and with programs that fail."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from docsplit.bundles.format import load
from docsplit.bundles.manifest import ComparedGraph, Exporter
from export.__main__ import main
from export.errors import ExportError
from export.optimum import Optimum, recommend
from export.pipeline import Request
from export.pipeline import export as run
from export.source import open_source, reference_vectors
from tests.export.checkpoints import cosines, encode
from tests.export.conftest import SIZES, save_sentence_transformer
from tests.export.optimum_environment import CLI, by_custom_tasks, needs_optimum, program
from tests.export.test_onnx_folder import write

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")


@pytest.fixture(scope="module")
def checkpoint(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    return save_sentence_transformer(bert_folder, folder, pooling="cls", normalise=True)


def order(source: Path, dest: Path, text_file: Path, **settings: Any) -> Request:
    given: dict[str, Any] = {
        "source": str(source),
        "dest": dest,
        "licence": "MIT",
        "calibration": text_file,
        "paragraphs": 200,
        "precisions": ("fp16",),
        "through": "optimum",
        "optimum_cli": str(CLI),
        **settings,
    }
    return Request(**given)


@pytest.fixture(scope="module")
def stand_in(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that exports the checkpoint's graph, and knows no fusions for it."""
    folder = tmp_path_factory.mktemp("program")
    made = folder / "made"
    shutil.copytree(checkpoint, made)
    model = SentenceTransformer(
        str(checkpoint), device="cpu", model_kwargs={"attn_implementation": "eager"}
    )
    write(model, made / "model.onnx")
    body = f"""
if sys.argv[1] == "env":
    print("- `optimum` version: 2.1.0\\n- `transformers` version: 4.57.6\\n- Platform: Linux")
elif sys.argv[1:3] == ["export", "onnx"]:
    assert sys.argv[sys.argv.index("--model") + 1] == {str(checkpoint)!r}
    shutil.copytree({str(made)!r}, sys.argv[-1])
else:
    sys.exit("NotImplementedError: no fusions for bert")
"""
    return program(folder / "optimum-cli", body)


def test_the_other_graph_is_compared_and_the_better_one_recommended(
    checkpoint: Path,
    stand_in: Path,
    text_file: Path,
    sentences: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--licence", "MIT", "--calibration", str(text_file), "--paragraphs", "200"]
    flags += ["--precision", "fp16", "--threads", "1", "--threshold", "fp16.neighbour_agreement=.7"]
    flags += ["--through", "optimum", "--optimum-cli", str(stand_in)]
    dest = tmp_path / "bundle"
    assert main([str(checkpoint), str(dest), *flags]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "optimum did not optimise the graph: optimum-cli onnxruntime optimize failed:" in said
    assert "fp16: recommended: " in said
    bundle = load(dest)
    lineage = bundle.manifest.lineage
    assert lineage.settings["through"] == "optimum"
    assert lineage.packages["optimum"] == "2.1.0"
    assert lineage.packages["optimum's transformers"] == "4.57.6"
    found = bundle.manifest.precisions["fp16"].comparison
    assert found is not None
    assert (found.written, found.failed) == ("optimum", {})
    assert set(found.graphs) == {"torch", "optimum"}
    assert {graph.kernels["Attention"] for graph in found.graphs.values()} == {2}
    assert min(graph.figures["cosine_min"] for graph in found.graphs.values()) > 0.9999
    reference = reference_vectors(open_source(str(checkpoint)), sentences).numpy()
    assert cosines(encode(bundle, sentences, size=8), reference).min() > 0.9999
    assert main(["inspect", str(dest)]) == 0
    assert "fp16: through optimum: cosine_mean" in " ".join(capsys.readouterr().out.split())


def graph(seconds: float) -> ComparedGraph:
    return ComparedGraph(kernels={}, figures={}, seconds=seconds)


@pytest.mark.parametrize(
    ("torch_seconds", "torch_holds", "optimum_holds", "expected"),
    [
        (1.0, True, True, "torch"),
        (1.2, True, True, "optimum"),
        (0.8, True, True, "torch"),
        (0.5, False, True, "optimum"),
        (2.0, True, False, "torch"),
        (None, False, True, "optimum"),
    ],
)
def test_the_recommended_graph_holds_and_is_notably_faster(
    torch_seconds: float | None, torch_holds: bool, optimum_holds: bool, expected: str
) -> None:
    graphs: dict[Exporter, ComparedGraph] = {"optimum": graph(1.0)}
    if torch_seconds is not None:
        graphs["torch"] = graph(torch_seconds)
    assert recommend(graphs, {"torch": torch_holds, "optimum": optimum_holds})[0] == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit('ValueError: no such architecture')", "export onnx failed: ValueError: no such"),
        ("sys.exit(7)", "export onnx failed: exit code 7"),
        ("pass", "wrote no graph, but an encoder needs one graph"),
        (
            "folder = pathlib.Path(sys.argv[-1]); folder.mkdir(parents=True)\n"
            "for name in ('encoder_model.onnx', 'decoder_model.onnx'): (folder / name).touch()",
            "wrote decoder_model.onnx, encoder_model.onnx, but an encoder needs one graph",
        ),
        (
            "folder = pathlib.Path(sys.argv[-1]); folder.mkdir(parents=True)\n"
            "(folder / 'model.onnx').write_bytes(b'')",
            r"model\.onnx: is no complete ONNX graph",
        ),
        (
            "folder = pathlib.Path(sys.argv[-1]); folder.mkdir(parents=True)\n"
            "(folder / 'model.onnx').write_bytes(b'<html>')",
            r"model\.onnx: cannot be opened",
        ),
    ],
)
def test_a_program_that_fails_is_named_and_nothing_is_written(
    body: str, reason: str, checkpoint: Path, text_file: Path, tmp_path: Path
) -> None:
    broken = program(tmp_path / "optimum-cli", body)
    with pytest.raises(ExportError, match=reason):
        run(order(checkpoint, tmp_path / "bundle", text_file, optimum_cli=str(broken)))
    assert list(tmp_path.iterdir()) == [broken]


def test_a_missing_program_says_how_to_install_it(
    checkpoint: Path, text_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"no such program; .* --optimum-cli optimum/bin/optimum"):
        run(order(checkpoint, tmp_path / "b", text_file, optimum_cli=str(tmp_path / "missing")))


def test_a_graph_of_its_own_goes_through_nothing(
    checkpoint: Path, stand_in: Path, text_file: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(stand_in.parent / "made", tmp_path / "graph")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ExportError, match="optimum exports transformers only"):
        run(order(folder, tmp_path / "b", text_file, optimum_cli=str(stand_in)))


@needs_optimum
def test_optimum_exports_and_optimises_an_encoder(
    checkpoint: Path, text_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    assert "optimum" in Optimum(str(CLI)).versions()
    made = run(order(checkpoint, tmp_path / "bundle", text_file))
    assert made.precisions["fp16"].kernels["Attention"] == 2
    comparison = made.precisions["fp16"].comparison
    assert comparison is not None
    assert set(comparison.graphs) == {"torch", "optimum"}
    bundle = load(tmp_path / "bundle")
    reference = reference_vectors(open_source(str(checkpoint)), sentences).numpy()
    assert cosines(encode(bundle, sentences, size=8), reference).min() > 0.999
    again = run(order(checkpoint, tmp_path / "again", text_file))
    assert again.files == made.files


@needs_optimum
def test_optimum_exports_a_family_that_is_not_traced_here(
    bert_folder: Path, text_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    folder = shutil.copytree(bert_folder, tmp_path / "roformer")
    rows = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    torch.manual_seed(0)
    config = transformers.RoFormerConfig(
        vocab_size=rows, embedding_size=32, max_position_embeddings=96, **SIZES
    )
    transformers.RoFormerModel(config).save_pretrained(folder)
    with pytest.raises(ExportError, match="a roformer model is unsupported"):
        open_source(str(folder))
    made = run(order(folder, tmp_path / "bundle", text_file))
    comparison = made.precisions["fp16"].comparison
    assert comparison is not None
    assert "a roformer model is unsupported" in comparison.failed["torch"]
    assert comparison.recommended == "optimum"
    source = open_source(str(folder), any_family=True)
    reference = reference_vectors(source, sentences).numpy()
    assert cosines(encode(load(tmp_path / "bundle"), sentences, size=8), reference).min() > 0.999


@needs_optimum
def test_a_graph_of_a_bundle_opens_in_optimum(
    checkpoint: Path, stand_in: Path, text_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    run(order(checkpoint, tmp_path / "bundle", text_file, through="torch"))
    bundle = load(tmp_path / "bundle")
    # that no window cuts
    texts = [text for text in sentences if len(text.split()) < 12]
    own = encode(bundle, texts, size=len(texts))
    vectors = by_custom_tasks(bundle.root, texts, tmp_path)
    assert cosines(vectors, own).min() > 0.99999
    # the control: another text
    assert cosines(vectors[1:], own[:-1]).max() < 0.999
    assert onnx.load(bundle.graph("fp16")).graph.output[0].name == "sentence_embedding"
