"""Turn a checkpoint into a complete bundle, or write nothing."""

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch

from bundles.format import seal
from bundles.manifest import Manifest, Precision, PrecisionName
from export.checkpoint import long_attention
from export.checkpoint.card import licence
from export.checkpoint.modules import describe
from export.checkpoint.source import Source, open_source
from export.checkpoint.tokenizer import batches, write_tokenizer
from export.checks.engines import Inputs, check_device
from export.checks.finite import check_weights
from export.checks.gate import Gate
from export.checks.thresholds import check_figures
from export.destination import check_destination, put_in_place
from export.errors import ExportError
from export.graphs.graph import OPSET, write_graph
from export.passages import PEPS, read_passages
from export.precisions import Forms
from export.progress import Report, unreported
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


@dataclass(frozen=True)
class Request:
    """The options of ``docsplit-export``.

    Attributes:
        source: folder or hub name of the checkpoint.
        dest: folder of the bundle.
        licence: SPDX identifier of the weights' licence; by default the model card's.
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
        thresholds: thresholds that replace the usual ones, for example ``int8.cosine_min``.
        accept: forms to write even if they miss a threshold.
    """

    source: str
    dest: Path
    licence: str | None = None
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
    thresholds: Mapping[str, float] = field(default_factory=dict)
    accept: Collection[PrecisionName] = ()


def versions() -> dict[str, str]:
    """Versions of the packages that shape a bundle, for its lineage."""
    return {name: version(name) for name in PACKAGES}


def prepare(request: Request) -> Path:
    """Check the options that need no source; returns the absolute path of the new bundle.

    Raises:
        ExportError: a precision cannot be made here, or ``dest`` exists.
    """
    if request.precisions is not None and not request.precisions:
        raise ExportError("no precision to write; name fp16, packed, int8 or several")
    for precision in request.precisions or ():
        check_device(precision)
    dest = request.dest.expanduser().absolute()
    check_destination(dest, force=request.force)
    torch.set_num_threads(request.threads)
    return dest


def export(
    request: Request,
    report: Report = unreported,
    note: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Write the bundle of an encoder.

    The function writes the bundle to a temporary folder next to ``dest``. It renames the folder
    when the bundle is complete and has passed the gate. A failure does not change ``dest``. If one
    form fails, the bundle holds the others.

    Args:
        request: the options.
        report: called with each step and the share of it that is done.
        note: called with each line about what stays in floating point.

    Raises:
        IncompleteError: the bundle is in place without the forms that failed.
        ExportError: the source is unsupported, ``dest`` exists, there is too little text, every
            graph is too far from the source or loses too much at a task, or a weight or vector is
            not finite.
        DataError: the held-out data cannot be read.
        BundleError: the manifest is not valid.
    """
    check_figures(request.thresholds)
    dest = prepare(request)
    report("opening the source")
    source = open_source(
        request.source,
        source_name=request.source_name,
        max_tokens=request.max_tokens,
        trust_remote_code=request.trust_remote_code,
        half=bool(request.accept),
    )
    precisions = _precisions(request, source)
    _check_accepted(request, source, precisions)
    terms = request.licence or licence(source.name, source.card)
    report("checking the weights")
    check_weights(source)
    passages = read_passages(
        request.calibration, parity=request.paragraphs, max_tokens=source.max_tokens
    )
    report("reading the held-out data")
    tasks = read_tasks(request.held_out, request.calibration or PEPS, passages.calibration)
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as folder:
        scratch = Path(folder)
        bundle = scratch / "bundle"
        bundle.mkdir()
        report("writing the tokenizer")
        tokenizer = write_tokenizer(source, bundle, [*passages.calibration, *passages.parity])
        gate = Gate(
            source,
            tokenizer,
            passages.parity,
            tasks,
            threads=request.threads,
            report=report,
            thresholds=request.thresholds,
        )
        report("tracing the fp32 graph")
        fp32 = scratch / "model.onnx"
        write_graph(source, fp32)
        gate.check_trace(fp32)

        def calibration(size: int) -> list[Inputs]:
            # texts of similar length need little padding
            texts = passages.calibration if size == 1 else sorted(passages.calibration, key=len)
            pad = int(source.tokenizer.pad_token_id)
            return batches(
                tokenizer, texts, max_tokens=source.max_tokens, pad_token_id=pad, size=size
            )

        forms = Forms(
            source,
            fp32,
            calibration,
            gate,
            keep_float=request.keep_float,
            accept=request.accept,
            unverified=source.unverified,
            threads=request.threads,
            report=report,
            note=note,
        )
        written = forms.make(precisions, bundle)
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
            matryoshka=source.matryoshka,
            precisions={
                name: Precision.model_validate(form) for name, form in written.forms.items()
            },
            licence=terms,
            lineage=_lineage(source, request, len(passages.calibration)),
        )
        put_in_place(bundle, dest, scratch, failed=written.failed.keys())
    written.check_complete(dest)
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


def _check_accepted(request: Request, source: Source, precisions: Sequence[PrecisionName]) -> None:
    """Refuse forms that nobody verifies, unless the user accepts each by name."""
    left = [name for name in precisions if name not in request.accept]
    if source.unverified is not None and left:
        raise ExportError(
            f"{source.name}: {source.unverified}; accept it for each form: "
            f"--accept {' '.join(precisions)}"
        )


def _lineage(source: Source, request: Request, calibration: int) -> dict[str, object]:
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
            "calibration_passages": calibration,
            "keep_float": request.keep_float or "",
        },
        "packages": versions(),
    }
