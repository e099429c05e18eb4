"""Turn a checkpoint into a complete bundle, or write nothing."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch
from tokenizers import Tokenizer

from bundles.format import seal
from bundles.manifest import Manifest, Precision, PrecisionName, Ranges
from export.checkpoint import long_attention
from export.checkpoint.modules import describe
from export.checkpoint.source import Source, open_source
from export.checkpoint.tokenizer import batches, write_tokenizer
from export.checks.engines import Inputs, check_device
from export.checks.finite import check_weights
from export.checks.gate import MEASURED_BATCH, Gate, Report
from export.errors import ExportError
from export.graphs.fp16 import FILE as FP16_FILE
from export.graphs.fp16 import write_fp16
from export.graphs.graph import OPSET, write_graph
from export.graphs.int8 import FILE as INT8_FILE
from export.graphs.int8 import write_int8
from export.graphs.packed import FILE as PACKED_FILE
from export.graphs.packed import write_packed
from export.passages import CALIBRATION, PEPS, read_passages
from export.tasks.held_out import HeldOut, read_tasks

PACKAGES = (
    "nncf",
    "onnx",
    "onnxruntime",
    "openvino",
    "sentence-transformers",
    "tokenizers",
    "torch",
    "transformers",
)
FILES: Mapping[PrecisionName, str] = {
    "fp16": FP16_FILE,
    "packed": PACKED_FILE,
    "int8": INT8_FILE,
}


@dataclass(frozen=True)
class Request:
    """The options of ``docsplit-export``.

    Attributes:
        source: folder or hub name of the checkpoint.
        dest: folder of the bundle.
        licence: SPDX identifier of the weights' licence.
        name: the bundle's name; by default the name of ``dest``.
        source_name: the source's name in the lineage; by default the hub's or folder's name.
        max_tokens: window, special tokens included; by default the source's.
        trust_remote_code: run model code in the folder of the weights.
        precisions: forms to write; by default fp16 and int8, for a long checkpoint only fp16.
        keep_float: regular expression for names of operators that int8 leaves in floating point.
        calibration: file of real text; by default the PEPs of ``examples/peps``.
        paragraphs: number of paragraphs for parity.
        held_out: data for the loss at tasks; by default none.
        threads: processor threads.
        force: replace an existing ``dest``.
    """

    source: str
    dest: Path
    licence: str
    name: str | None = None
    source_name: str | None = None
    max_tokens: int | None = None
    trust_remote_code: bool = False
    precisions: Sequence[PrecisionName] | None = None
    keep_float: str | None = None
    calibration: Path | None = None
    paragraphs: int = 300
    held_out: HeldOut = field(default_factory=HeldOut)
    threads: int = 1
    force: bool = False


def export(request: Request, report: Report = lambda step: None) -> Manifest:
    """Write the bundle.

    The function writes the bundle to a temporary folder next to ``dest``. It renames the folder
    when the bundle is complete and has passed the gate. A failure does not change ``dest``.

    Raises:
        ExportError: the source is unsupported, ``dest`` exists, there is too little text, a graph
            is too far from the source or loses too much at a task, or a weight or vector is not
            finite.
        DataError: the held-out data cannot be read.
        BundleError: the manifest is not valid.
    """
    if request.precisions is not None and not request.precisions:
        raise ExportError("no precision to write; name fp16, packed, int8 or several")
    for precision in request.precisions or ():
        check_device(precision)
    dest = request.dest.expanduser().absolute()
    _check_destination(dest, force=request.force)
    torch.set_num_threads(request.threads)
    report("opening the source")
    source = open_source(
        request.source,
        source_name=request.source_name,
        max_tokens=request.max_tokens,
        trust_remote_code=request.trust_remote_code,
    )
    precisions = _precisions(request, source)
    check_weights(source)
    passages = read_passages(
        request.calibration, parity=request.paragraphs, max_tokens=source.max_tokens
    )
    report("reading the held-out data")
    tasks = read_tasks(request.held_out, request.calibration or PEPS, passages.calibration)
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as scratch:
        bundle = Path(scratch) / "bundle"
        bundle.mkdir()
        report("writing the tokenizer")
        tokenizer = write_tokenizer(source, bundle, [*passages.calibration, *passages.parity])
        report("tracing the fp32 graph")
        fp32 = Path(scratch) / "model.onnx"
        write_graph(source, fp32)
        kernels: dict[PrecisionName, dict[str, int]] = {}
        ranges: Ranges | None = None
        if {"fp16", "packed"} & set(precisions):
            report("writing the fp16 graph")
            # texts of similar length need little padding
            ordered = sorted(passages.calibration, key=len)
            inputs = _inputs(source, tokenizer, ordered, size=MEASURED_BATCH)
            written = write_fp16(source, fp32, Path(scratch), inputs)
            ranges = written.ranges
            half = Path(scratch) / FP16_FILE
            if "fp16" in precisions:
                half = half.rename(bundle / FP16_FILE)
                kernels["fp16"] = written.kernels
            if "packed" in precisions:
                report("writing the packed graph")
                kernels["packed"] = write_packed(half, bundle)
        if "int8" in precisions:
            report("writing the int8 graph")
            inputs = _inputs(source, tokenizer, passages.calibration, size=1)
            kernels["int8"] = write_int8(fp32, bundle, inputs, keep_float=request.keep_float)
        gate = Gate(
            source, tokenizer, passages.parity, tasks, threads=request.threads, report=report
        )
        parities = gate.measure({name: bundle / FILES[name] for name in kernels})
        report("sealing the bundle")
        manifest = seal(
            bundle,
            name=request.name or dest.name,
            dimensions=gate.dimensions,
            pooling=source.pooling,
            max_tokens=source.max_tokens,
            pad_token_id=source.tokenizer.pad_token_id,
            prompts=source.prompts,
            default_prompt=source.default_prompt,
            precisions={
                name: Precision(
                    runtime="openvino" if name == "int8" else "onnx",
                    file=FILES[name],
                    kernels=kernels[name],
                    parity=parity,
                    ranges=None if name == "int8" else ranges,
                )
                for name, parity in parities.items()
            },
            licence=request.licence,
            lineage=_lineage(source, request),
        )
        _put_in_place(bundle, dest, Path(scratch))
    return manifest


def _precisions(request: Request, source: Source) -> Sequence[PrecisionName]:
    long = source.encoder.config.model_type == long_attention.MODEL_TYPE
    if request.precisions is None:
        return ("fp16",) if long else ("fp16", "int8")
    if long and set(request.precisions) != {"fp16"}:
        raise ExportError(
            f"{source.name}: a long checkpoint exports only to fp16, which CPUs compute in f32 "
            "or bf16; int8 and packed do not support its attention; omit --precision"
        )
    return request.precisions


def _check_destination(dest: Path, *, force: bool) -> None:
    if not dest.exists():
        return
    if not dest.is_dir():
        raise ExportError(f"{dest}: is not a folder")
    if not force:
        raise ExportError(f"{dest}: already exists; --force replaces it")
    strangers = any(dest.iterdir()) and not (dest / "bundle.json").is_file()
    if strangers:
        raise ExportError(f"{dest}: is not a bundle; --force does not remove it")


def _inputs(source: Source, tokenizer: Tokenizer, texts: list[str], *, size: int) -> list[Inputs]:
    return batches(
        tokenizer,
        texts,
        max_tokens=source.max_tokens,
        pad_token_id=int(source.tokenizer.pad_token_id),
        size=size,
    )


def _lineage(source: Source, request: Request) -> dict[str, object]:
    return {
        "source": source.name,
        "source_sha256": source.weights_digest(),
        "settings": {
            "architecture": type(source.encoder).__name__,
            "source_max_tokens": source.trained_tokens,
            "source_normalises": source.normalises,
            "source_modules": describe(source.after),
            "opset": OPSET,
            "calibration": request.calibration.name if request.calibration else "examples/peps",
            "calibration_passages": CALIBRATION,
            "keep_float": request.keep_float or "",
        },
        "packages": {name: version(name) for name in PACKAGES},
    }


def _put_in_place(bundle: Path, dest: Path, scratch: Path) -> None:
    """Rename ``bundle`` to ``dest``. A former ``dest`` moves to ``scratch``, which is removed."""
    if not dest.exists():
        bundle.rename(dest)
        return
    former = scratch / "former"
    dest.rename(former)
    try:
        bundle.rename(dest)
    except OSError:
        former.rename(dest)
        raise
    shutil.rmtree(former)
