"""Turn a checkpoint into a complete bundle, or write nothing."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer

from docsplit.bundles.format import load_any, seal, seal_reranker
from docsplit.bundles.manifest import (
    NAME,
    BundleError,
    Exporter,
    Manifest,
    Precision,
    PrecisionName,
    RankedPrecision,
    RerankerManifest,
    WindowWeights,
)
from docsplit.windowing.pairs import PairTokenizer
from docsplit.windowing.windows import Weighing
from export import fp16, int8
from export.attention import LONG_MODEL_TYPE
from export.engines import Inputs, check_device
from export.errors import ExportError, IncompleteError
from export.gate import MEASURED_BATCH, Gate, Judge, PairGate, check_weights
from export.graph import OPSET, write_graph
from export.optimum import Optimum, compare, write_graphs
from export.progress import Report, unreported
from export.repair import Half, Integer, Made, make
from export.requirements import InText, Reader, licence, locate
from export.source import (
    STATIC_MODEL_TYPE,
    Checkpoint,
    PairSource,
    check_no_tasks,
    is_reranker,
    open_checkpoint,
)
from export.tasks import HeldOut, Task, check_texts, read_tasks
from export.texts import (
    PEPS,
    check_prompts,
    documents,
    make_pairs,
    read_passages,
    write_tokenizer,
)
from export.thresholds import Given, check_figures, misses, refusal

# The folder of a new bundle.


def check_destination(dest: Path, *, force: bool) -> None:
    """Refuse a folder that is no bundle, or that is one without ``force``.

    Raises:
        ExportError: ``dest`` must not be replaced.
    """
    if not dest.exists():
        if dest.is_symlink():
            raise ExportError(f"{dest}: is a link that leads nowhere; remove it")
        return
    if not dest.is_dir():
        raise ExportError(f"{dest}: is not a folder")
    if not force:
        raise ExportError(f"{dest}: already exists; --force replaces it")
    strangers = any(dest.iterdir()) and not (dest / "bundle.json").is_file()
    if strangers:
        raise ExportError(f"{dest}: is not a bundle; --force does not remove it")


def put_in_place(
    bundle: Path,
    dest: Path,
    scratch: Path,
    *,
    force: bool,
    failed: Set[PrecisionName] = frozenset(),
) -> None:
    """Rename ``bundle`` to ``dest``. A former ``dest`` moves to ``scratch`` and is removed; of a
    link only the link.

    Raises:
        ExportError: the former bundle has a form that failed this time, or ``dest`` must not be
            replaced.
    """
    # the export took minutes or hours, and another one may have made it meanwhile
    check_destination(dest, force=force)
    if not dest.exists():
        bundle.rename(dest)
        return
    lost = failed & _forms(dest)
    if lost:
        raise ExportError(
            f"{dest}: has {' and '.join(sorted(lost))}, which failed this time, so it stays; to "
            "replace it, name the forms to write with --precision"
        )
    former = scratch / "former"
    dest.rename(former)
    try:
        bundle.rename(dest)
    except OSError:
        former.rename(dest)
        raise
    if former.is_symlink():
        former.unlink()
    else:
        shutil.rmtree(former)


def _forms(dest: Path) -> Set[PrecisionName]:
    try:
        return load_any(dest, verify=False).manifest.precisions.keys()
    except BundleError:
        # nothing serves it
        return frozenset()


# Write the forms of a bundle, each whether or not another one fails.

FILES: Mapping[PrecisionName, str] = {
    "fp16": fp16.FILE,
    "packed": fp16.PACKED_FILE,
    "int8": int8.FILE,
}


class Written(NamedTuple):
    """The fields of a bundle's forms in the manifest, and why others failed."""

    forms: dict[PrecisionName, dict[str, object]]
    failed: dict[PrecisionName, str]

    def check_complete(self, dest: Path) -> None:
        """Raise an ``IncompleteError`` if a form of the bundle at ``dest`` failed."""
        if self.failed:
            raise IncompleteError(
                f"{dest}: written without {' and '.join(self.failed)}: "
                + "; ".join(self.failed.values())
            )


class Forms:
    """Writes and measures the forms of one source.

    Args:
        source: the checkpoint.
        fp32: the unfused fp32 graph.
        calibration: gives real inputs in batches of a size, to calibrate int8 and to measure the
            ranges of fp16. Batches of several texts hold texts of similar length.
        gate: measures the graphs.
        keep_float: regular expression for names of operators that int8 leaves in floating point.
        accept: forms to write even if they miss a threshold.
        unverified: what the export could not check in the source, for the manifest.
        fused: the fp32 graph, if something else has already fused it.
        threads: processor threads.
        report: called with each step.
        note: called with what the user should read.
    """

    def __init__(
        self,
        source: Checkpoint,
        fp32: Path,
        calibration: Callable[[int], list[Inputs]],
        gate: Judge,
        *,
        keep_float: str | None,
        accept: Collection[PrecisionName],
        unverified: str | None = None,
        fused: Path | None = None,
        threads: int,
        report: Report,
        note: Callable[[str], None],
    ) -> None:
        self._source, self._fp32, self._fused = source, fp32, fused
        self._calibration, self._gate = calibration, gate
        self._keep_float, self._accept, self._threads = keep_float, accept, threads
        self._unverified = [] if unverified is None else [unverified]
        self._report, self._note = report, note

    def make(self, wanted: Sequence[PrecisionName], bundle: Path) -> Written:
        """Write the forms and move those that hold into ``bundle``.

        Raises:
            ExportError: every form fails.
        """
        made: dict[PrecisionName, Made] = {}
        failed: dict[PrecisionName, str] = {}
        # the packed graph is made of the fp16 graph, and int8 takes longest
        for name in [name for name in FILES if name in wanted]:
            try:
                made[name] = self._made(name)
            except ExportError as error:
                failed[name] = str(error)
        if not made:
            raise ExportError("; ".join(failed.values()))
        for name in made:
            for file in self._folder(name).iterdir():
                file.rename(bundle / file.name)
        written: dict[PrecisionName, dict[str, object]] = {
            name: {
                "runtime": "openvino" if name == "int8" else "onnx",
                "file": FILES[name],
                "kernels": one.kernels,
                "parity": one.parity,
                "ranges": None if name == "int8" else self._half.ranges,
                "repair": one.repair,
                "accepted": [*self._unverified, *one.accepted],
            }
            for name, one in made.items()
        }
        return Written(written, failed)

    def _made(self, name: PrecisionName) -> Made:
        accept = name in self._accept
        if name == "packed":
            return self._packed(accept)
        form = self._half if name == "fp16" else self._integer()
        return make(form, self._gate, accept=accept, note=self._note)

    @cached_property
    def _half(self) -> Half:
        step = "measuring the range of values for fp16"
        fused = fp16.fuse(
            self._source,
            self._fp32,
            self._calibration(MEASURED_BATCH),
            fused=self._fused,
            threads=self._threads,
            advance=lambda share: self._report(step, share),
        )
        return Half(fused, self._folder("fp16"), self._threads, self._report)

    def _integer(self) -> Integer:
        step = "calibrating the int8 graph"
        quantised = int8.quantise(
            self._fp32,
            self._calibration(1),
            keep_float=self._keep_float,
            advance=lambda share: self._report(step, share),
        )
        return Integer(quantised, self._folder("int8"), self._threads, self._report)

    def _packed(self, accept: bool) -> Made:
        if not self._half.graph.is_file():
            self._half.write()
        self._report("writing the packed graph")
        kernels = fp16.write_packed(self._half.graph, self._folder("packed"))
        graph = self._folder("packed") / fp16.PACKED_FILE
        parity = self._gate.parity("packed", graph).parity
        parity = self._gate.with_losses("packed", graph, parity)
        missed = misses(parity)
        if missed and not accept:
            raise refusal("packed", parity)
        return Made(kernels, parity, None, missed)

    def _folder(self, name: PrecisionName) -> Path:
        folder = self._fp32.parent / name
        folder.mkdir(exist_ok=True)
        return folder


# Turn a checkpoint into a complete bundle, or write nothing.

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
    LONG_MODEL_TYPE: "a long checkpoint exports only to fp16, which CPUs compute in f32 "
    "or bf16; int8 and packed do not support its attention",
    STATIC_MODEL_TYPE: "static embeddings export only to fp16; they have no products that int8 or "
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
        tokenizer: which tokenizer to take if ``tokenizer.json`` and its class differ.
        special_tokens_in_text: what special tokens in a text are; by default what the files say.
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
    tokenizer: Reader | None = None
    special_tokens_in_text: InText | None = None
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
) -> Manifest | RerankerManifest:
    """Write the bundle of an encoder or of a cross-encoder.

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
    dest = prepare(request)
    reranker = is_reranker(request.source, trusted=request.trust_remote_code)
    check_figures(request.thresholds, reranker=reranker)
    if reranker:
        _check_pair_request(request)
    _, name, card = locate(request.source, trusted=request.trust_remote_code)
    terms = request.licence or licence(request.source_name or name, card)
    optimum = Optimum(request.optimum_cli) if request.through == "optimum" else None
    report("reading the held-out data")
    next(documents(request.calibration or PEPS), None)
    tasks = read_tasks(request.held_out, request.calibration or PEPS)
    report("opening the source")
    source = open_checkpoint(
        request.source,
        reranker=reranker,
        source_name=request.source_name,
        max_tokens=request.max_tokens,
        tokenizer=request.tokenizer,
        special_tokens_in_text=request.special_tokens_in_text,
        trust_remote_code=request.trust_remote_code,
        half=bool(request.accept),
        any_family=optimum is not None,
    )
    precisions = _precisions(request, source)
    _check_accepted(request, source, precisions)
    report("checking the weights")
    check_weights(source)
    passages = read_passages(
        request.calibration, parity=request.paragraphs, max_tokens=source.max_tokens
    )
    check_texts(tasks, passages.calibration)
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{dest.name}-", dir=dest.parent) as folder:
        scratch = Path(folder)
        bundle = scratch / "bundle"
        bundle.mkdir()
        report("writing the tokenizer")
        tokenizer = write_tokenizer(source, bundle, [*passages.calibration, *passages.parity])
        gate = open_gate(
            source,
            tokenizer,
            passages.parity,
            tasks,
            threads=request.threads,
            report=report,
            thresholds=request.thresholds,
            weights=request.window_weights,
        )
        fp32 = scratch / "model.onnx"
        optimised = None
        if optimum is None or isinstance(source, PairSource):
            report("tracing the fp32 graph")
            write_graph(source, fp32)
        else:
            trusted = request.trust_remote_code
            optimised = write_graphs(source, fp32, optimum, report, trusted=trusted)
            if optimised.left_out is not None:
                note(f"optimum did not optimise the graph: {optimised.left_out}")
        gate.check_trace(fp32)
        calibration = gate.calibration(passages.calibration)
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
        if isinstance(gate, Gate) and optimised is not None and "fp16" in written.forms:
            form = Precision.model_validate(written.forms["fp16"])
            compared = compare(
                gate.source,
                gate,
                form,
                bundle / form.file,
                calibration(MEASURED_BATCH),
                scratch,
                threads=request.threads,
                report=report,
            )
            written.forms["fp16"]["comparison"] = compared
            for line in compared.lines():
                note(f"fp16: {line}")
        report("sealing the bundle")
        packages = {} if optimised is None else dict(optimised.packages)
        lineage = _lineage(source, request, len(passages.calibration), packages)
        manifest = _seal(
            bundle,
            request,
            source,
            gate,
            written,
            name=request.name or dest.name,
            licence=terms,
            lineage=lineage,
        )
        put_in_place(bundle, dest, scratch, force=request.force, failed=written.failed.keys())
    written.check_complete(dest)
    return manifest


def open_gate(
    source: Checkpoint,
    tokenizer: Tokenizer,
    passages: list[str],
    tasks: Sequence[Task],
    *,
    threads: int,
    report: Report,
    thresholds: Given,
    weights: WindowWeights,
) -> Gate | PairGate:
    """The gate of an encoder, or that of a re-ranker, which measures no tasks.

    Raises:
        ExportError: a prompt of the encoder fills a window.
    """
    if isinstance(source, PairSource):
        joint = PairTokenizer(tokenizer, source.max_tokens, source.segment_offset)
        pairs = make_pairs(passages, joint)
        return PairGate(source, joint, pairs, threads=threads, report=report, thresholds=thresholds)
    check_prompts(source, tokenizer)
    return Gate(
        source,
        tokenizer,
        passages,
        tasks,
        threads=threads,
        report=report,
        thresholds=thresholds,
        weighing=Weighing(weights.unit, weights.first),
    )


def _check_pair_request(request: Request) -> None:
    """Refuse options that only encoders have."""
    check_no_tasks(request.source, request.held_out)
    if request.through != "torch":
        raise ExportError(f"{request.source}: is a re-ranker; --through optimum exports encoders")
    if request.window_weights != WindowWeights():
        raise ExportError(
            f"{request.source}: is a re-ranker; only encoders have weights of windows"
        )


def _precisions(request: Request, source: Checkpoint) -> Sequence[PrecisionName]:
    why = _ONLY_FP16.get(source.encoder.config.model_type)
    if request.precisions is None:
        return ("fp16", "int8") if why is None else ("fp16",)
    if why is not None and set(request.precisions) != {"fp16"}:
        raise ExportError(f"{source.name}: {why}; omit --precision")
    return request.precisions


def _check_accepted(
    request: Request, source: Checkpoint, precisions: Sequence[PrecisionName]
) -> None:
    """Refuse forms that nobody verifies, unless the user accepts each by name."""
    left = [name for name in precisions if name not in request.accept]
    if source.unverified is not None and left:
        raise ExportError(
            f"{source.name}: {source.unverified}; accept it for each form: "
            f"--accept {' '.join(precisions)}"
        )


def _seal(
    bundle: Path,
    request: Request,
    source: Checkpoint,
    gate: Gate | PairGate,
    written: Written,
    **common: Any,
) -> Manifest | RerankerManifest:
    common |= {"max_tokens": source.max_tokens, "pad_token_id": source.tokenizer.pad_token_id}
    forms = written.forms.items()
    if isinstance(source, PairSource):
        made = {name: RankedPrecision.model_validate(form) for name, form in forms}
        return seal_reranker(
            bundle, segment_offset=source.segment_offset, precisions=made, **common
        )
    assert isinstance(gate, Gate)  # noqa: S101 - open_gate gives encoders this one
    return seal(
        bundle,
        dimensions=gate.dimensions,
        pooling=source.pooling,
        window_weights=request.window_weights,
        prompts=source.prompts,
        default_prompt=source.default_prompt,
        matryoshka=source.matryoshka,
        precisions={name: Precision.model_validate(form) for name, form in forms},
        **common,
    )


def _lineage(
    source: Checkpoint, request: Request, calibration: int, packages: Mapping[str, str]
) -> dict[str, object]:
    return {
        "source": source.name,
        "source_sha256": source.weights_digest(),
        "settings": {
            "architecture": type(source.encoder).__name__,
            "source_max_tokens": source.trained_tokens,
            **source.settings,
            "opset": OPSET,
            "calibration": request.calibration.name if request.calibration else "examples/peps",
            "calibration_passages": calibration,
            "keep_float": request.keep_float or "",
            "tokenizer": request.tokenizer or "",
            "special_tokens_in_text": "text"
            if source.tokenizer.split_special_tokens
            else "control",
            "through": request.through,
        },
        "packages": {**versions(), **packages},
    }
