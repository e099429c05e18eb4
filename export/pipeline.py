"""Turn a checkpoint into a complete bundle, or write nothing."""

import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch

from docsplit.bundles.format import seal
from docsplit.bundles.manifest import (
    NAME,
    Exporter,
    Manifest,
    Precision,
    PrecisionName,
    WindowWeights,
)
from docsplit.windowing.weighing import Weighing
from export.checkpoint import long_attention, static
from export.checkpoint.card import licence
from export.checkpoint.modules import describe
from export.checkpoint.source import Source, open_source
from export.checkpoint.tokenizer import batches, check_prompts, write_tokenizer
from export.checks.engines import Inputs, check_device
from export.checks.finite import check_weights
from export.checks.gate import MEASURED_BATCH, Gate
from export.checks.thresholds import check_figures
from export.destination import check_destination, put_in_place
from export.errors import ExportError
from export.graphs.graph import OPSET, write_graph
from export.optimum.comparison import compare
from export.optimum.graphs import write_graphs
from export.optimum.program import Optimum
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
_ONLY_FP16 = {
    long_attention.MODEL_TYPE: "a long checkpoint exports only to fp16, which CPUs compute in f32 "
    "or bf16; int8 and packed do not support its attention",
    static.MODEL_TYPE: "static embeddings export only to fp16; they have no products that int8 or "
    "packed would save",
}


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
        window_weights: how much each window of a document counts in its vector.
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
        through: what writes the fp32 graph.
        optimum_cli: the program for ``through="optimum"``.
    """

    source: str
    dest: Path
    licence: str | None = None
    name: str | None = None
    source_name: str | None = None
    max_tokens: int | None = None
    window_weights: WindowWeights = field(default_factory=WindowWeights)
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
    through: Exporter = "torch"
    optimum_cli: str = "optimum-cli"


def versions() -> dict[str, str]:
    """Versions of the packages that shape a bundle, for its lineage."""
    return {name: version(name) for name in PACKAGES}


def prepare(request: Request) -> Path:
    """Check the options that need no source; returns the absolute path of the new bundle.

    Raises:
        ExportError: a precision cannot be made here, ``dest`` exists, or the bundle cannot have
            the name.
    """
    if request.precisions is not None and not request.precisions:
        raise ExportError("no precision to write; name fp16, packed, int8 or several")
    for precision in request.precisions or ():
        check_device(precision)
    dest = request.dest.expanduser().absolute()
    check_destination(dest, force=request.force)
    name = request.name or dest.name
    if re.fullmatch(NAME, name) is None:
        raise ExportError(
            f"the bundle cannot have the name {name!r}: give one of letters, digits, ., _ and - "
            "with --name; up to 128, and the first is a letter or digit"
        )
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
    optimum = Optimum(request.optimum_cli) if request.through == "optimum" else None
    report("opening the source")
    source = open_source(
        request.source,
        source_name=request.source_name,
        max_tokens=request.max_tokens,
        trust_remote_code=request.trust_remote_code,
        half=bool(request.accept),
        any_family=optimum is not None,
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
        check_prompts(source, tokenizer)
        gate = Gate(
            source,
            tokenizer,
            passages.parity,
            tasks,
            threads=request.threads,
            report=report,
            thresholds=request.thresholds,
            weighing=Weighing(request.window_weights.unit, request.window_weights.first),
        )
        fp32 = scratch / "model.onnx"
        optimised = None
        if optimum is None:
            report("tracing the fp32 graph")
            write_graph(source, fp32)
        else:
            trusted = request.trust_remote_code
            optimised = write_graphs(source, fp32, optimum, report, trusted=trusted)
            if optimised.left_out is not None:
                note(f"optimum did not optimise the graph: {optimised.left_out}")
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
            fused=None if optimised is None else optimised.fused,
            threads=request.threads,
            report=report,
            note=note,
        )
        written = forms.make(precisions, bundle)
        made = {name: Precision.model_validate(form) for name, form in written.forms.items()}
        if optimised is not None and "fp16" in made:
            compared = compare(
                source,
                gate,
                made["fp16"],
                bundle / made["fp16"].file,
                calibration(MEASURED_BATCH),
                scratch,
                threads=request.threads,
                report=report,
            )
            made["fp16"] = made["fp16"].model_copy(update={"comparison": compared})
            for line in compared.lines():
                note(f"fp16: {line}")
        report("sealing the bundle")
        manifest = seal(
            bundle,
            name=request.name or dest.name,
            dimensions=gate.dimensions,
            pooling=source.pooling,
            window_weights=request.window_weights,
            max_tokens=source.max_tokens,
            pad_token_id=source.tokenizer.pad_token_id,
            prompts=source.prompts,
            default_prompt=source.default_prompt,
            matryoshka=source.matryoshka,
            precisions=made,
            licence=terms,
            lineage=_lineage(
                source,
                request,
                len(passages.calibration),
                {} if optimised is None else optimised.packages,
            ),
        )
        put_in_place(bundle, dest, scratch, force=request.force, failed=written.failed.keys())
    written.check_complete(dest)
    return manifest


def _precisions(request: Request, source: Source) -> Sequence[PrecisionName]:
    why = _ONLY_FP16.get(source.encoder.config.model_type)
    if request.precisions is None:
        return ("fp16", "int8") if why is None else ("fp16",)
    if why is not None and set(request.precisions) != {"fp16"}:
        raise ExportError(f"{source.name}: {why}; omit --precision")
    return request.precisions


def _check_accepted(request: Request, source: Source, precisions: Sequence[PrecisionName]) -> None:
    """Refuse forms that nobody verifies, unless the user accepts each by name."""
    left = [name for name in precisions if name not in request.accept]
    if source.unverified is not None and left:
        raise ExportError(
            f"{source.name}: {source.unverified}; accept it for each form: "
            f"--accept {' '.join(precisions)}"
        )


def _lineage(
    source: Source, request: Request, calibration: int, packages: Mapping[str, str]
) -> dict[str, object]:
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
            "through": request.through,
        },
        "packages": {**versions(), **packages},
    }
